// Flows in C++: operators between streams, of a graph in TOML, with functions of the program. Included by stead.hpp.
//
//     stead::flow small("small.toml");
//     small.function("twice", [](const stead::flow::arrays &given, stead::flow::result &to) {
//         const auto x = given[0].as<double>();
//         auto out = to.as<double>();
//         for (std::size_t i = 0; i < x.size(); i++) out[i] = 2 * x[i];
//     });
//     small.run();
//
// docs/flows.md says what a graph has. Failures are exceptions of type stead::error. Threads: several may run a flow; functions
// are given before.
//
// SPDX-License-Identifier: Apache-2.0 OR MIT

#if !defined(STEAD_HPP)
// It is a part of that one, which includes it when its own part is there.
#include "stead.hpp"
#elif !defined(STEAD_FLOW_HPP)
#define STEAD_FLOW_HPP

#include <chrono>

namespace stead {

/// How a flow is run: see stead_flow_options. All of its ranks say the same, but for their rank.
struct flow_options {
    std::uint64_t rank = 0;
    std::uint64_t ranks = 1;
    /// 0 is what is usual, here and below.
    std::size_t threads = 0;
    std::uint64_t memory = 0;
    std::uint64_t steps = 0;
    std::chrono::milliseconds timeout{0};
    /// Ends it from another thread.
    const cancel_flag *cancel = nullptr;
    std::vector<std::string> dataspaces{};
    /// Programs on several nodes of which this is one; `rank` and `ranks` are those of its part.
    const stead_coupling *coupling = nullptr;
};

namespace detail {

/// The same as C has it.
class flow_choice {
public:
    explicit flow_choice(const flow_options &how) : spaces_(pointers(how.dataspaces)) {
        o_.size = sizeof o_;
        o_.rank = how.rank;
        o_.ranks = how.ranks;
        o_.threads = how.threads;
        o_.memory = how.memory;
        o_.steps = how.steps;
        o_.timeout_ms = how.timeout.count() < 0 ? 0 : static_cast<std::uint64_t>(how.timeout.count());
        o_.cancel = how.cancel ? how.cancel->get() : nullptr;
        o_.dataspaces = spaces_.data();
        o_.dataspaces_count = spaces_.size();
        o_.coupling = how.coupling;
    }
    flow_choice(const flow_choice &) = delete;
    flow_choice &operator=(const flow_choice &) = delete;
    const stead_flow_options *get() const noexcept { return &o_; }

private:
    std::vector<const char *> spaces_;
    stead_flow_options o_{};
};

} // namespace detail

/// A graph that was checked, and the functions that it needs.
class flow {
public:
    /// An array that a function is given. It lives as long as the call.
    class array {
    public:
        /// The type of its elements: STEAD_F64 and so on.
        stead_dtype dtype() const noexcept { return a_->dtype; }
        /// The lengths of its dimensions; a single number has none.
        span<const std::uint64_t> shape() const noexcept { return {a_->shape, a_->ndim}; }
        /// Its elements, the last index running fastest. Throws kind::usage if they are of another type.
        template <class T> span<const T> as() const {
            check<T>(a_->dtype);
            return {static_cast<const T *>(a_->data), a_->bytes / sizeof(T)};
        }

    protected:
        friend class flow;
        explicit array(const stead_flow_array *a) noexcept : a_(a) {}
        template <class T> static void check(stead_dtype dtype) {
            if (dtype != detail::dtype<T>())
                throw error(kind::usage, "an array of a flow has elements of another type than " +
                                             std::to_string(8 * sizeof(T)) + " bits as the function takes them");
        }
        const stead_flow_array *a_;
    };

    /// The arrays that a function is given.
    using arrays = std::vector<array>;

    /// The array that a function makes: zeros before.
    class result : public array {
    public:
        /// Its elements, to be written. Throws kind::usage if they are of another type.
        template <class T> span<T> as() const {
            array::check<T>(a_->dtype);
            return {static_cast<T *>(to_), a_->bytes / sizeof(T)};
        }

    private:
        friend class flow;
        result(const stead_flow_array *a, void *to) noexcept : array(a), to_(to) {}
        void *to_;
    };

    /// What a function does. What it throws ends the flow, and is thrown by `run`.
    using function_type = std::function<void(const arrays &given, result &to)>;

    /// The path of a file of TOML or, if it has more than one line, the text itself.
    explicit flow(const std::string &toml) {
        stead_flow *f = nullptr;
        detail::call(stead_flow_open, toml.c_str(), &f);
        handle_.reset(f);
    }

    /// Gives a function under the name that nodes with `op = "map"` have for it.
    flow &function(const std::string &name, function_type f) {
        functions_.push_back(std::make_unique<function_type>(std::move(f)));
        detail::call(stead_flow_function, get(), name.c_str(), &flow::called, static_cast<void *>(functions_.back().get()));
        return *this;
    }

    /// Loads the functions that it names in libraries, `function = "lib.so:name"`, which are trusted: see stead_flow_load.
    flow &load() {
        detail::call(stead_flow_load, get());
        return *this;
    }

    /// Runs it until one of the streams that it reads has ended, in this thread; what was done, as JSON: see stead_flow_run.
    std::string run(const flow_options &how = {}) const {
        const detail::flow_choice o(how);
        char *json = nullptr;
        stead_error *e = nullptr;
        thrown() = nullptr;
        const stead_status status = stead_flow_run(get(), o.get(), &json, &e);
        const std::exception_ptr cause = std::exchange(thrown(), nullptr);
        if (status == STEAD_OK) return detail::taken(json);
        const error failed(status, e);
        if (cause) std::rethrow_exception(cause);
        throw failed;
    }

    stead_flow *get() const noexcept { return handle_.get(); }

private:
    /// What a function has thrown that this thread has called: that of a flow calls it.
    static std::exception_ptr &thrown() {
        thread_local std::exception_ptr e;
        return e;
    }
    static int called(const stead_flow_array *given, std::size_t count, const stead_flow_array *wanted, void *to, void *user) {
        try {
            arrays all;
            for (std::size_t i = 0; i < count; i++) all.push_back(array(given + i));
            result out(wanted, to);
            (*static_cast<function_type *>(user))(all, out);
            return 0;
        } catch (...) {
            thrown() = std::current_exception();
            return 1;
        }
    }

    // They outlive the handle, which calls them; those that were replaced a flow may go on with.
    std::vector<std::unique_ptr<function_type>> functions_;
    detail::handle<stead_flow, &stead_flow_free> handle_;
};

} // namespace stead

#endif
