// Kernels of one's own, requests and runs: the second half of stead.hpp, which includes it.

#ifndef STEAD_KERNEL_HPP
#define STEAD_KERNEL_HPP

namespace stead {

/// Some records of one file, as a kernel of one's own sees them. Good during the call.
class block {
public:
    explicit block(const stead_block *b) : b_(b) {}

    /// Number of records; 0 if the kernel asked for bytes alone.
    std::size_t rows() const { return stead_block_rows(b_); }
    /// Number of columns that the kernel asked for as numbers, with "*" resolved.
    std::size_t number_count() const { return stead_block_number_count(b_); }
    /// The `i`-th of them, one value a row; missing ones as is_missing() knows them.
    span<const double> numbers(std::size_t i) const {
        const double *p = stead_block_numbers(b_, i);
        return {p, p ? rows() : 0};
    }
    /// The value in a row of the `i`-th column that the kernel asked for as text; nothing if it is missing.
    std::optional<std::string_view> text(std::size_t i, std::size_t row) const {
        return maybe(stead_block_text, i, row);
    }
    /// The bytes of a record, with its line end if it is a line.
    std::string_view record(std::size_t row) const { return maybe(stead_block_record, row).value_or(""); }
    /// The bytes of the block, in one piece or, where records were taken out, several.
    std::vector<std::string_view> runs() const {
        std::vector<std::string_view> all;
        for (std::size_t i = 0, n = stead_block_run_count(b_); i < n; i++)
            all.push_back(maybe(stead_block_run, i).value_or(""));
        return all;
    }
    /// Index of the file.
    std::uint32_t source() const { return stead_block_source(b_); }
    /// Where in the (decompressed) file its bytes begin.
    std::uint64_t offset() const { return stead_block_offset(b_); }

private:
    template <class F, class... A> std::optional<std::string_view> maybe(F f, A... at) const {
        std::size_t n = 0;
        const char *p = f(b_, at..., &n);
        if (!p) return std::nullopt;
        return std::string_view(p, n);
    }

    const stead_block *b_;
};

/// Where `finish` of a kernel of one's own puts its result, if it does not return it. Good during the call.
class result {
public:
    explicit result(stead_builder *b) : b_(b) {}

    result &null() { return did(stead_builder_null(b_)); }
    result &boolean(bool x) { return did(stead_builder_bool(b_, x)); }
    result &count(std::uint64_t x) { return did(stead_builder_int(b_, x)); }
    result &number(double x) { return did(stead_builder_double(b_, x)); }
    result &text(const std::string &x) { return did(stead_builder_text(b_, x.c_str())); }
    /// A list of numbers.
    result &numbers(span<const double> x) { return did(stead_builder_doubles(b_, x.data(), x.size())); }
    result &numbers(const std::vector<double> &x) { return did(stead_builder_doubles(b_, x.data(), x.size())); }
    /// A list of rows of numbers.
    result &numbers(const matrix &x) { return did(stead_builder_matrix(b_, x.data.data(), x.rows, x.columns)); }
    /// A list, whose members `fill` adds.
    template <class F> result &list(F fill) {
        did(stead_builder_list(b_));
        fill(*this);
        return did(stead_builder_end(b_));
    }
    /// A map, whose members `fill` adds, each after its key().
    template <class F> result &map(F fill) {
        did(stead_builder_map(b_));
        fill(*this);
        return did(stead_builder_end(b_));
    }
    /// No result yet: the data are read once more, and the states of that pass begin as the one that `finish` leaves.
    result &again() { return did(stead_builder_again(b_)); }
    /// The name of the next member of a map.
    result &key(const std::string &name) { return did(stead_builder_key(b_, name.c_str())); }

    /// What a `finish` returned, as a result.
    template <class T> void take(const T &x) {
        if constexpr (std::is_same_v<T, bool>) boolean(x);
        else if constexpr (std::is_floating_point_v<T>) number(static_cast<double>(x));
        else if constexpr (std::is_unsigned_v<T>) count(x);
        else if constexpr (std::is_integral_v<T>) x < 0 ? number(static_cast<double>(x)) : count(static_cast<std::uint64_t>(x));
        else if constexpr (std::is_convertible_v<T, std::string>) text(x);
        else numbers(x);
    }

private:
    result &did(stead_status status) {
        if (status != STEAD_OK) throw error(kind::usage, stead_last_message());
        return *this;
    }

    stead_builder *b_;
};

/// What a kernel of one's own looks at.
struct needs {
    /// Columns wanted as numbers, by name or position; "*" for all that hold numbers.
    std::vector<std::string> numbers;
    /// Columns wanted as text.
    std::vector<std::string> texts;
    /// The bytes of the records.
    bool bytes = false;
    /// How many records there are; known anyway where columns or records are asked for.
    bool rows = false;
    /// Each record's bytes.
    bool records = false;
    /// Blocks, and states to merge, in the order of the data, for merging that is associative and does not commute: each
    /// rank works with one thread.
    bool order = false;
};

namespace detail {

/// A kernel whose types are known only where it was made.
struct any_kernel {
    std::string name;
    needs wanted;
    std::size_t state_size = 0;
    stead_init_fn init = nullptr;
    stead_update_fn update = nullptr;
    stead_merge_fn merge = nullptr;
    stead_finish_fn finish = nullptr;
    any_kernel() = default;
    any_kernel(const any_kernel &) = delete;
    any_kernel &operator=(const any_kernel &) = delete;
    virtual ~any_kernel() = default;
};

/// Runs what must not throw into C; an exception becomes a failure with its message.
template <class F> int guarded(F f) noexcept {
    try {
        f();
        return STEAD_OK;
    } catch (const error &e) {
        return stead_fail(static_cast<stead_status>(e.kind()), e.what());
    } catch (const std::exception &e) {
        return stead_fail(STEAD_DATA, e.what());
    } catch (...) {
        return stead_fail(STEAD_DATA, "an exception of unknown type");
    }
}

template <class State, class Update, class Merge, class Finish> struct typed_kernel final : any_kernel {
    State empty;
    Update do_update;
    Merge do_merge;
    Finish do_finish;

    typed_kernel(State e, Update u, Merge m, Finish f)
        : empty(e), do_update(std::move(u)), do_merge(std::move(m)), do_finish(std::move(f)) {
        state_size = sizeof(State);
        init = [](void *state, void *user) { return guarded([&] { new (state) State(me(user).empty); }); };
        update = [](void *state, const stead_block *b, void *user) {
            return guarded([&] { me(user).do_update(*static_cast<State *>(state), block(b)); });
        };
        merge = [](void *state, const void *other, void *user) {
            return guarded([&] { me(user).do_merge(*static_cast<State *>(state), *static_cast<const State *>(other)); });
        };
        finish = [](void *state, stead_builder *b, void *user) {
            return guarded([&] {
                result out(b);
                State &s = *static_cast<State *>(state);
                if constexpr (std::is_invocable_v<const Finish &, State &, result &>) me(user).do_finish(s, out);
                else out.take(me(user).do_finish(std::as_const(s)));
            });
        };
    }

    /// `user` is a pointer to a shared pointer to the kernel.
    static const typed_kernel &me(void *user) {
        return static_cast<const typed_kernel &>(**static_cast<std::shared_ptr<const any_kernel> *>(user));
    }
};

} // namespace detail

/// A kernel of one's own: see make_kernel. Copies share their functions.
class kernel {
public:
    explicit kernel(std::shared_ptr<const detail::any_kernel> k) : k_(std::move(k)) {}
    const std::string &name() const { return k_->name; }

private:
    friend class request;
    std::shared_ptr<const detail::any_kernel> k_;
};

/// A kernel of one's own, whose result stands under `name`: `update(State &, const block &)` adds a block,
/// `merge(State &, const State &)` another state, and `finish` says what a state means: it returns a number, a text, a
/// std::vector<double> or a stead::matrix, or takes (State &, result &) and fills the result, or asks for another pass
/// over the data (result::again), whose states begin as the one that it leaves.
///
/// States are copied and sent between ranks as bytes, so they hold no pointers. The functions are called by several
/// threads at the same time, each on states of its own. Merging must be associative, and commutative unless needs::order is
/// set. An exception stops the run, and its message is that of the run's error.
template <class State, class Update, class Merge, class Finish>
kernel make_kernel(std::string name, needs wanted, Update update, Merge merge, Finish finish, State empty = State()) {
    static_assert(std::is_trivially_copyable_v<State>, "states travel as bytes: no pointers, vectors or strings");
    static_assert(alignof(State) <= 16, "states are aligned to 16 bytes");
    static_assert(std::is_invocable_v<const Update &, State &, const block &>, "update(State &, const block &)");
    static_assert(std::is_invocable_v<const Merge &, State &, const State &>, "merge(State &, const State &)");
    static_assert(std::is_invocable_v<const Finish &, State &, result &> ||
                      std::is_invocable_v<const Finish &, const State &>,
                  "finish(const State &) or finish(State &, result &)");
    using typed = detail::typed_kernel<State, Update, Merge, Finish>;
    auto k = std::make_shared<typed>(empty, std::move(update), std::move(merge), std::move(finish));
    k->name = std::move(name);
    k->wanted = std::move(wanted);
    return kernel(std::move(k));
}

/// What a run looks like from outside, now.
using progress = stead_progress;

/// A run that is asked for. Setters return the request, so that they chain.
class request {
public:
    request() {
        stead_request *r = nullptr;
        detail::call(stead_request_new, &r);
        handle_.reset(r);
    }
    request(request &&) noexcept = default;
    request &operator=(request &&) noexcept = default;

    /// A kernel by its specification, such as "mean:arr_delay", which is the name of its result too.
    request &kernel(const std::string &spec) {
        detail::call(stead_request_kernel, get(), spec.c_str());
        return *this;
    }
    /// A kernel of one's own.
    request &kernel(const stead::kernel &own) {
        const detail::any_kernel &k = *own.k_;
        const auto numbers = detail::pointers(k.wanted.numbers), texts = detail::pointers(k.wanted.texts);
        stead_kernel c{};
        c.size = sizeof c;
        c.name = k.name.c_str();
        c.state_size = k.state_size;
        c.numbers = numbers.data();
        c.number_count = numbers.size();
        c.texts = texts.data();
        c.text_count = texts.size();
        c.needs = (k.wanted.bytes ? STEAD_NEEDS_BYTES : 0u) | (k.wanted.rows ? STEAD_NEEDS_ROWS : 0u) |
                  (k.wanted.records ? STEAD_NEEDS_RECORDS : 0u) | (k.wanted.order ? STEAD_NEEDS_ORDER : 0u);
        c.init = k.init;
        c.update = k.update;
        c.merge = k.merge;
        c.finish = k.finish;
        c.user = new std::shared_ptr<const detail::any_kernel>(own.k_);
        c.release = detail::drop<std::shared_ptr<const detail::any_kernel>>;
        detail::call(stead_request_own_kernel, get(), &c);
        return *this;
    }
    /// Only rows for which this holds.
    request &where(const std::string &filter) {
        detail::call(stead_request_where, get(), filter.c_str());
        return *this;
    }
    /// Answers for each value of this column, and of those named before.
    request &by(const std::string &column) {
        detail::call(stead_request_by, get(), column.c_str());
        return *this;
    }
    /// Worker threads; 0 is one for each processor.
    request &threads(std::size_t n) {
        detail::call(stead_request_threads, get(), n);
        return *this;
    }
    /// Bytes of memory that buffers and states may take.
    request &memory(std::uint64_t bytes) {
        detail::call(stead_request_memory, get(), bytes);
        return *this;
    }
    /// Bytes of one extent.
    request &extent(std::size_t bytes) {
        detail::call(stead_request_extent, get(), bytes);
        return *this;
    }
    /// Whether records that cannot be read are counted and skipped.
    request &lenient(bool yes = true) {
        detail::call(stead_request_lenient, get(), yes);
        return *this;
    }
    /// One of the means by the name that it has on the command line: see stead_request_set.
    request &set(const std::string &name, const std::string &value) {
        detail::call(stead_request_set, get(), name.c_str(), value.c_str());
        return *this;
    }
    /// A file that is going to be written when the run is done.
    request &output(const std::string &path) {
        detail::call(stead_request_output, get(), path.c_str());
        return *this;
    }
    /// Lets the flag stop runs of this request.
    request &cancel(const cancel_flag &flag) {
        detail::call(stead_request_cancel, get(), flag.get());
        return *this;
    }
    /// Has `f(const progress &)` called about ten times a second, by the thread that runs. If it returns a bool,
    /// false stops the run; an exception does too, and comes out of dataset::run.
    template <class F> request &progress(F f) {
        watch_ = std::make_unique<watch>();
        watch_->call = [f = std::move(f)](const stead::progress &p) mutable {
            if constexpr (std::is_convertible_v<std::invoke_result_t<F &, const stead::progress &>, bool>) return static_cast<bool>(f(p));
            else return f(p), true;
        };
        detail::call(stead_request_progress, get(), &request::watched, static_cast<void *>(watch_.get()));
        return *this;
    }

    /// Does what runs this request; what kernels and callbacks of it have thrown comes out.
    template <class F> void raising(F f) const {
        try {
            f();
        } catch (const error &) {
            rethrow();
            throw;
        }
    }

    stead_request *get() const noexcept { return handle_.get(); }

private:
    struct watch {
        std::function<bool(const stead::progress &)> call;
        std::mutex lock;
        std::exception_ptr thrown;
    };

    static int watched(const stead_progress *p, void *user) {
        watch &w = *static_cast<watch *>(user);
        try {
            return w.call(*p) ? 0 : 1;
        } catch (...) {
            const std::lock_guard<std::mutex> held(w.lock);
            w.thrown = std::current_exception();
            return 1;
        }
    }

    /// Throws what the progress function has thrown.
    void rethrow() const {
        if (!watch_) return;
        std::exception_ptr e;
        {
            const std::lock_guard<std::mutex> held(watch_->lock);
            std::swap(e, watch_->thrown);
        }
        if (e) std::rethrow_exception(e);
    }

    // The request goes first: it points to what is watched.
    std::unique_ptr<watch> watch_;
    detail::handle<stead_request, &stead_request_free> handle_;
};

inline report dataset::run(const request &r) const {
    stead_report *out = nullptr;
    r.raising([&] { detail::call(stead_run, get(), r.get(), &out); });
    return report(out);
}

inline report dataset::run(std::initializer_list<std::string> specs) const {
    request r;
    for (const std::string &s : specs) r.kernel(s);
    return run(r);
}

} // namespace stead

#endif
