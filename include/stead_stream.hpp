// Streams in C++: programs of one node hand arrays to each other in memory, step by step. Included by stead.hpp.
//
//     stead::stream::writer out("sim");
//     const auto t = out.define<double>("T", {60, 40});
//     out.begin();
//     out.put(t, {0, 0}, {60, 40}, field.data());
//     out.end();
//
// and in another program:
//
//     stead::stream::reader in("sim");
//     for (const stead::stream::step &step : in) std::vector<double> part = step.get<double>("T", {0, 10}, {60, 5});
//
// A box of an array is where it begins and how many elements it has, in each dimension. Failures are exceptions of type
// stead::error. Threads: a writer and a reader are used by one at a time, steps and views by any number.
//
// SPDX-License-Identifier: Apache-2.0 OR MIT

#if !defined(STEAD_HPP)
// It is a part of that one, which includes it when its own part is there.
#include "stead.hpp"
#elif !defined(STEAD_STREAM_HPP)
#define STEAD_STREAM_HPP

#include <chrono>
#include <condition_variable>
#include <map>

namespace stead {
namespace stream {

/// A number for each dimension of an array.
using numbers = std::vector<std::uint64_t>;
/// What is said of a variable beside its data.
using attribute = std::variant<std::string, std::int64_t, double, std::vector<std::string>, std::vector<std::int64_t>,
                               std::vector<double>>;

/// How a stream is written: see stead_stream_writer_options. All of its writers say the same, but for their rank.
struct writer_options {
    std::uint64_t rank = 0;
    std::uint64_t writers = 1;
    std::uint64_t keep = 1;
    /// 0 is what is usual, here and below.
    std::uint64_t queue = 0;
    std::uint64_t memory = 0;
    std::uint64_t readers = 0;
    std::chrono::milliseconds timeout{0};
    std::vector<std::string> dataspaces{};
    /// Programs on several nodes of which this is one; `rank` and `writers` are those of its part.
    const stead_coupling *coupling = nullptr;
    /// Folders, by their paths or in dataspaces: where all steps are recorded, and where those are that readers with STEAD_STREAM_SPILL
    /// are behind by; for the latter also "auto", the first dataspace that has room. None if they are empty.
    std::string persist{};
    std::string spill{};
    /// Bytes that the files of the latter may take; 0 for as many as the disk has.
    std::uint64_t spill_limit = 0;
};

/// How a stream is read: see stead_stream_reader_options. All ranks of a group say the same, but for their rank.
struct reader_options {
    std::string group = "readers";
    /// Only if `ranks` is not 0.
    std::uint64_t rank = 0;
    /// 0: all ranks of the part, with a coupling, each in its place there; and one without.
    std::uint64_t ranks = 0;
    stead_stream_start start = STEAD_STREAM_OLDEST;
    stead_stream_behind behind = STEAD_STREAM_BLOCK;
    /// 0 is what is usual, here and below.
    std::chrono::milliseconds timeout{0};
    std::size_t threads = 0;
    std::vector<std::string> dataspaces{};
    /// Programs on several nodes of which this is one: writers may be on any of these nodes, whoever has begun them.
    const stead_coupling *coupling = nullptr;
    /// Other nodes of the pool of daemons that writers may be on. Usually all are asked, unless all of the stream is written here or, with a
    /// coupling, on its nodes.
    std::optional<std::vector<std::string>> nodes{};
    /// Steps that the group may be behind, 0 for the stream's number; and steps that it has had which stay for it.
    std::uint64_t queue = 0;
    std::uint64_t keep = 0;
};

/// Whose streams are told of, or removed: see stead_stream_survey.
struct survey {
    std::vector<std::string> dataspaces{};
    /// Other nodes of the pool of daemons that are asked: usually all, and none of an empty list.
    std::optional<std::vector<std::string>> nodes{};
    /// How long other nodes are waited for; 0 is what is usual.
    std::chrono::milliseconds timeout{0};
};

namespace detail {

using stead::detail::call;

inline std::uint64_t milliseconds(std::chrono::milliseconds time) {
    return time.count() < 0 ? 0 : static_cast<std::uint64_t>(time.count());
}

/// Not less than a time of any unit, which may be more than a count of milliseconds can be.
template <class R, class P> std::uint64_t milliseconds(std::chrono::duration<R, P> time) {
    const auto seconds = std::chrono::duration<long double>(time).count();
    if (seconds >= 9e15L) return milliseconds(std::chrono::milliseconds::max());
    return milliseconds(std::chrono::ceil<std::chrono::milliseconds>(time));
}

/// The names of other nodes, as C has them: NULL stands for all, also where there are none.
inline std::vector<const char *> others(const std::optional<std::vector<std::string>> &nodes) {
    if (!nodes) return {};
    auto all = stead::detail::pointers(*nodes);
    all.push_back(nullptr);
    return all;
}

/// Asks for what is told as JSON of these streams.
template <class F, class... A> std::string told(F f, const survey &of, A... a) {
    const auto spaces = stead::detail::pointers(of.dataspaces);
    const auto nodes = others(of.nodes);
    stead_stream_survey s{};
    s.size = sizeof s;
    s.dataspaces = spaces.data();
    s.dataspaces_count = spaces.size();
    s.nodes = nodes.empty() ? nullptr : nodes.data();
    s.nodes_count = nodes.empty() ? 0 : nodes.size() - 1;
    s.timeout_ms = milliseconds(of.timeout);
    char *json = nullptr;
    call(f, &s, a..., &json);
    return stead::detail::taken(json);
}

/// C reads a number for each dimension.
inline void check(std::size_t ndim, const numbers &of, const char *what) {
    if (of.size() == ndim) return;
    throw error(kind::usage, std::string("the ") + what + " has " + std::to_string(of.size()) +
                                 " numbers, and the array " + std::to_string(ndim) + " dimensions");
}

} // namespace detail

/// A variable that a writer has defined, whose elements are of this type. What it was before it was defined anew, with another type or number
/// of dimensions, is refused.
template <class T> class variable {
public:
    /// Its number.
    std::uint32_t number() const noexcept { return number_; }
    /// How many dimensions it has.
    std::size_t ndim() const noexcept { return ndim_; }

private:
    friend class writer;
    variable(std::uint32_t number, std::size_t ndim) noexcept : number_(number), ndim_(ndim) {}
    std::uint32_t number_;
    std::size_t ndim_;
};

/// Memory for a block, to be filled and put without a copy. What is not put is freed.
template <class T> class room {
public:
    /// Its elements, the last index running fastest: at first whatever was there before.
    T *data() const noexcept { return elements_.data(); }
    std::size_t size() const noexcept { return elements_.size(); }
    T &operator[](std::size_t i) const { return elements_[i]; }
    T *begin() const noexcept { return data(); }
    T *end() const noexcept { return data() + size(); }

private:
    friend class writer;
    room(stead_stream_room *r, T *first, std::size_t n) : handle_(r), elements_(first, n) {}
    stead::detail::handle<stead_stream_room, &stead_stream_room_free> handle_;
    span<T> elements_;
};

/// Memory for `n` elements that is made before there is a writer, and that any writer puts without a copy, as often as one likes. Once it was put
/// it is to be read only. When it goes, steps that have it keep it, and the next one of this size has the memory of one whose steps have gone.
template <class T> class buffer {
public:
    explicit buffer(std::size_t n, const std::vector<std::string> &dataspaces = {}) {
        const auto spaces = stead::detail::pointers(dataspaces);
        // More than any memory has where it does not fit.
        const std::uint64_t bytes = n > SIZE_MAX / sizeof(T) ? UINT64_MAX : static_cast<std::uint64_t>(n) * sizeof(T);
        void *memory = nullptr;
        stead_stream_buffer *b = nullptr;
        detail::call(stead_stream_empty, spaces.data(), spaces.size(), bytes, &memory, &b);
        handle_.reset(b);
        elements_ = span<T>(static_cast<T *>(memory), n);
    }
    /// Its elements: at first whatever was there before.
    T *data() const noexcept { return elements_.data(); }
    std::size_t size() const noexcept { return elements_.size(); }
    T &operator[](std::size_t i) const { return elements_[i]; }
    T *begin() const noexcept { return data(); }
    T *end() const noexcept { return data() + size(); }

    const stead_stream_buffer *get() const noexcept { return handle_.get(); }

private:
    stead::detail::handle<stead_stream_buffer, &stead_stream_buffer_free> handle_;
    span<T> elements_;
};

/// Puts blocks of variables into the steps of a stream. When it goes, the stream is closed; or given up, if it is within a step or
/// something was thrown.
class writer {
public:
    explicit writer(const std::string &name, const writer_options &how = {}) : thrown_(std::uncaught_exceptions()) {
        const auto spaces = stead::detail::pointers(how.dataspaces);
        stead_stream_writer_options o{};
        o.size = sizeof o;
        o.rank = how.rank;
        o.writers = how.writers;
        o.keep = how.keep == 0 ? STEAD_STREAM_KEEP_NONE : how.keep;
        o.queue = how.queue;
        o.memory = how.memory;
        o.readers = how.readers;
        o.timeout_ms = detail::milliseconds(how.timeout);
        o.dataspaces = spaces.data();
        o.dataspaces_count = spaces.size();
        o.coupling = how.coupling;
        o.persist = how.persist.empty() ? nullptr : how.persist.c_str();
        o.spill = how.spill.empty() ? nullptr : how.spill.c_str();
        o.spill_limit = how.spill_limit;
        stead_stream_writer *w = nullptr;
        detail::call(stead_stream_writer_open, name.c_str(), &o, &w);
        handle_.reset(w);
    }
    writer(writer &&) noexcept = default;
    writer &operator=(writer &&) noexcept = default;
    ~writer() {
        if (handle_ && std::uncaught_exceptions() > thrown_) stead_stream_writer_abandon(handle_.release(), nullptr);
    }

    /// Says what a variable is: the shape of the whole array, of which writers put parts, and the names of its dimensions, if they
    /// have any. Attributes that it had are gone. See stead_stream_writer_define.
    template <class T>
    variable<T> define(const std::string &name, const numbers &shape, const std::vector<std::string> &dims = {}) {
        if (!dims.empty() && dims.size() != shape.size())
            throw error(kind::usage, std::to_string(dims.size()) + " names for " + std::to_string(shape.size()) +
                                         " dimensions of variable '" + name + "'");
        const auto names = stead::detail::pointers(dims);
        std::uint32_t number = 0;
        detail::call(stead_stream_writer_define, get(), name.c_str(), stead::detail::dtype<T>(), shape.size(),
                     shape.data(), dims.empty() ? nullptr : names.data(), &number);
        return variable<T>(number, shape.size());
    }

    /// Says something of a variable beside its data, before a part of it is put into a step.
    template <class T> void set(const variable<T> &of, const std::string &key, const attribute &value) {
        const auto say = [&](auto f, auto... a) { detail::call(f, get(), of.number(), key.c_str(), a...); };
        const auto list = [&](auto f, const auto &all) { say(f, all.data(), all.size()); };
        switch (value.index()) {
        case 0: return say(stead_stream_writer_attribute_text, std::get<0>(value).c_str());
        case 1: return say(stead_stream_writer_attribute_int, std::get<1>(value));
        case 2: return say(stead_stream_writer_attribute_double, std::get<2>(value));
        case 3: return list(stead_stream_writer_attribute_texts, stead::detail::pointers(std::get<3>(value)));
        case 4: return list(stead_stream_writer_attribute_ints, std::get<4>(value));
        default: return list(stead_stream_writer_attribute_doubles, std::get<5>(value));
        }
    }
    /// The same, with a text.
    template <class T> void set(const variable<T> &of, const std::string &key, const char *value) {
        set(of, key, attribute(std::string(value)));
    }
    /// The same, with a whole number. Throws STEAD_USAGE beyond what 64 bits with a sign can count.
    template <class T, class N, std::enable_if_t<std::is_integral_v<N>, int> = 0>
    void set(const variable<T> &of, const std::string &key, N value) {
        const auto number = static_cast<std::int64_t>(value);
        if (value > N{0} && number < 0)
            throw error(kind::usage, "attribute '" + key + "': " + std::to_string(value) + " is beyond what 64 bits with a sign can count");
        set(of, key, attribute(number));
    }

    /// What it has done so far, and for whom it has waited, as JSON.
    std::string report() const {
        char *json = nullptr;
        detail::call(stead_stream_writer_report, get(), &json);
        return stead::detail::taken(json);
    }
    /// What has become of readers since this was asked last, as JSON: see stead_stream_writer_events.
    std::string events() {
        char *json = nullptr;
        detail::call(stead_stream_writer_events, get(), &json);
        return stead::detail::taken(json);
    }
    /// Begins a step, when there is room for it; its number.
    std::uint64_t begin() {
        std::uint64_t step = 0;
        detail::call(stead_stream_writer_begin, get(), &step);
        return step;
    }
    /// Puts a block, whose elements lie one after the other, the last index running fastest. They are copied.
    template <class T>
    void put(const variable<T> &of, const numbers &start, const numbers &count, const T *data) {
        check(of, start, count);
        detail::call(stead_stream_writer_put, get(), of.number(), start.data(), count.data(),
                     static_cast<const void *>(data));
    }
    /// Puts all of a variable, or its one element.
    template <class T> void put(const variable<T> &of, const T *data) {
        check(of);
        detail::call(stead_stream_writer_put, get(), of.number(), nullptr, nullptr, static_cast<const void *>(data));
    }
    /// Defines a variable, and puts a block of it.
    template <class T>
    void put(const std::string &name, const numbers &shape, const numbers &start, const numbers &count, const T *data) {
        put(define<T>(name, shape), start, count, data);
    }
    /// Memory for a block, to be filled and put without a copy.
    template <class T> room<T> empty(const variable<T> &of, const numbers &start, const numbers &count) {
        check(of, start, count);
        void *memory = nullptr;
        stead_stream_room *r = nullptr;
        detail::call(stead_stream_writer_empty, get(), of.number(), start.data(), count.data(), &memory, &r);
        std::size_t n = 1;
        // As many as there is memory for, so that they fit.
        for (const std::uint64_t c : count) n *= static_cast<std::size_t>(c);
        return room<T>(r, static_cast<T *>(memory), memory ? n : 0);
    }
    /// Puts a block that was filled in its place. The room is used up, whatever comes of it.
    template <class T> void put(room<T> filled) {
        // The call takes it, unless there is no writer: then it goes with `filled`.
        stead_stream_room *const r = handle_ ? filled.handle_.release() : filled.handle_.get();
        detail::call(stead_stream_writer_put_room, get(), r);
    }
    /// Puts a block that lies at the beginning of a buffer, the last index running fastest, where it lies.
    template <class T> void put(const variable<T> &of, const numbers &start, const numbers &count, const buffer<T> &made) {
        check(of, start, count);
        detail::call(stead_stream_writer_put_buffer, get(), of.number(), start.data(), count.data(), made.get());
    }
    /// Puts all of a variable.
    template <class T> void put(const variable<T> &of, const buffer<T> &made) {
        check(of);
        detail::call(stead_stream_writer_put_buffer, get(), of.number(), nullptr, nullptr, made.get());
    }
    /// Ends the step: when all writers have, readers see it.
    void end() { detail::call(stead_stream_writer_end, get()); }
    /// Closes the stream: readers come to its end when all writers have.
    void close() { detail::call(stead_stream_writer_close, handle_.release()); }
    /// Gives the stream up: readers are told that it has failed.
    void abandon() { detail::call(stead_stream_writer_abandon, handle_.release()); }

    stead_stream_writer *get() const noexcept { return handle_.get(); }

private:
    /// A variable that was defined anew, as one of another type, has another number of bytes than there are.
    template <class T> void check(const variable<T> &of) const {
        detail::call(stead_stream_writer_is, get(), of.number(), stead::detail::dtype<T>(), of.ndim());
    }
    template <class T> void check(const variable<T> &of, const numbers &start, const numbers &count) const {
        check(of);
        detail::check(of.ndim(), start, "start");
        detail::check(of.ndim(), count, "count");
    }

    stead::detail::handle<stead_stream_writer, &stead_stream_writer_free> handle_;
    int thrown_;
};

/// What a variable of a step is.
struct definition {
    std::string name;
    /// STEAD_F64 and so on.
    stead_dtype dtype = 0;
    numbers shape;
    /// None, or one for each dimension.
    std::vector<std::string> dims;
};

/// A part of a variable that a writer has put.
struct part {
    std::uint64_t writer = 0;
    numbers start;
    numbers count;
};

/// A box of a variable where it lies: it stays as it is as long as there is a view of it, also when its step has gone.
template <class T> class view {
public:
    /// The first element.
    const T *data() const noexcept { return data_; }
    /// How many elements there are in each dimension.
    const numbers &shape() const noexcept { return shape_; }
    /// How many bytes it is from one element to the next, in each dimension.
    const std::vector<std::int64_t> &strides() const noexcept { return strides_; }
    /// An element, by an index for each dimension.
    template <class... I> const T &operator()(I... index) const {
        const std::array<std::int64_t, sizeof...(I)> at{static_cast<std::int64_t>(index)...};
        std::int64_t bytes = 0;
        for (std::size_t d = 0; d < at.size(); d++) bytes += at[d] * strides_[d];
        return *reinterpret_cast<const T *>(reinterpret_cast<const char *>(data_) + bytes);
    }
    /// True if it is memory of a writer, and was not copied.
    bool is_view() const noexcept { return stead_stream_array_is_view(handle_.get()); }

private:
    friend class step;
    view() = default;
    stead::detail::handle<stead_stream_array, &stead_stream_array_free> handle_;
    const T *data_ = nullptr;
    numbers shape_;
    std::vector<std::int64_t> strides_;
};

/// A step of a stream, complete. It stays as it is.
class step {
public:
    /// Takes over a step of the C interface.
    explicit step(stead_stream_step *s) noexcept : handle_(s) {}

    /// Its number, from 0 on.
    std::uint64_t number() const noexcept { return stead_stream_step_number(get()); }
    /// How many steps before it the reader was not given, since they went before it came to them.
    std::uint64_t dropped() const noexcept { return stead_stream_step_dropped(get()); }
    /// The bytes of the arrays that writers have put into it.
    std::uint64_t bytes() const noexcept { return stead_stream_step_bytes(get()); }
    /// When the last writer ended it.
    std::chrono::system_clock::time_point completed() const noexcept {
        const std::chrono::nanoseconds since(static_cast<std::int64_t>(stead_stream_step_completed_at(get())));
        return std::chrono::system_clock::time_point(
            std::chrono::duration_cast<std::chrono::system_clock::duration>(since));
    }

    /// What there is in it.
    std::vector<definition> variables() const {
        std::vector<definition> all(stead_stream_step_variables(get()));
        for (std::size_t i = 0; i < all.size(); i++) {
            stead_stream_variable v{};
            detail::call(stead_stream_step_variable, get(), i, &v, sizeof v);
            all[i] = told(v);
        }
        return all;
    }
    /// What it has cost so far, as JSON.
    std::string report() const {
        char *json = nullptr;
        detail::call(stead_stream_step_report, get(), &json);
        return stead::detail::taken(json);
    }
    /// What a variable is. Throws STEAD_NOT_FOUND if there is none of the name.
    definition find(const std::string &name) const {
        stead_stream_variable v{};
        detail::call(stead_stream_step_find, get(), name.c_str(), &v, sizeof v);
        return told(v);
    }
    /// Which parts of a variable writers have put, in their order. Throws STEAD_NOT_FOUND if there is no such variable.
    std::vector<part> parts(const std::string &name) const {
        const std::size_t ndim = find(name).shape.size();
        numbers writers, starts, counts;
        std::size_t n = 0;
        do {
            writers.resize(n), starts.resize(n * ndim), counts.resize(n * ndim);
            detail::call(stead_stream_step_parts, get(), name.c_str(), writers.size(), writers.data(), starts.data(),
                         counts.data(), &n);
        } while (n > writers.size());
        std::vector<part> all(n);
        for (std::size_t i = 0; i < n; i++) {
            const auto from = static_cast<std::ptrdiff_t>(i * ndim), to = from + static_cast<std::ptrdiff_t>(ndim);
            all[i] = {writers[i], {starts.begin() + from, starts.begin() + to}, {counts.begin() + from, counts.begin() + to}};
        }
        return all;
    }
    /// What is said of a variable beside its data.
    std::map<std::string, attribute> attributes(const std::string &name) const {
        stead_stream_variable v{};
        detail::call(stead_stream_step_find, get(), name.c_str(), &v, sizeof v);
        std::map<std::string, attribute> all;
        for (std::size_t i = 0; i < v.attributes; i++) {
            stead_stream_attribute a{};
            detail::call(stead_stream_step_attribute, get(), name.c_str(), i, &a, sizeof a);
            all.emplace(a.key, told(a));
        }
        return all;
    }
    /// One attribute of a variable, as what it is. Throws STEAD_NOT_FOUND if there is none.
    template <class T> T attribute_as(const std::string &name, const std::string &key) const {
        stead_stream_attribute a{};
        detail::call(stead_stream_step_find_attribute, get(), name.c_str(), key.c_str(), &a, sizeof a);
        const attribute value = told(a);
        if (const T *is = std::get_if<T>(&value)) return *is;
        throw error(kind::usage, "attribute '" + key + "' of variable '" + name + "' is of another type");
    }

    /// A box of a variable, copied together. Throws STEAD_NOT_FOUND if nobody has put a part of it, and STEAD_USAGE if its elements
    /// are of another type.
    template <class T> std::vector<T> get(const std::string &name, const numbers &start, const numbers &count) const {
        const stead_stream_variable v = of<T>(name, start, count);
        std::uint64_t n = 1;
        for (std::size_t d = 0; d < v.ndim; d++) {
            // What is not within the array is for the library to refuse, before there is memory for it.
            if (start[d] > v.shape[d] || count[d] > v.shape[d] - start[d]) n = 0;
            n *= count[d];
        }
        std::vector<T> to(static_cast<std::size_t>(n));
        get_into(name, start, count, to.data(), to.size());
        return to;
    }
    /// All of a variable.
    template <class T> std::vector<T> get(const std::string &name) const {
        const definition is = find(name);
        return get<T>(name, numbers(is.shape.size()), is.shape);
    }
    /// A box of a variable, copied to memory that has room for `n` elements, which it is to have.
    template <class T>
    void get_into(const std::string &name, const numbers &start, const numbers &count, T *to, std::size_t n) const {
        of<T>(name, start, count);
        detail::call(stead_stream_step_get_into, get(), name.c_str(), start.data(), count.data(),
                     static_cast<void *>(to), n * sizeof(T));
    }
    /// The same, of what writers have put: the rest of `to` stays as it is. How many elements were copied.
    template <class T>
    std::size_t get_what_there_is(const std::string &name, const numbers &start, const numbers &count, T *to,
                                  std::size_t n) const {
        of<T>(name, start, count);
        std::size_t copied = 0;
        detail::call(stead_stream_step_get_what_there_is, get(), name.c_str(), start.data(), count.data(),
                     static_cast<void *>(to), n * sizeof(T), &copied);
        return copied / sizeof(T);
    }
    /// A box of a variable where it lies, if one writer has put all of it; copied together, if several have.
    template <class T> stream::view<T> view(const std::string &name, const numbers &start, const numbers &count) const {
        of<T>(name, start, count);
        stream::view<T> at;
        at.shape_ = count;
        at.strides_.resize(count.size());
        const void *data = nullptr;
        stead_stream_array *array = nullptr;
        // A place for the strides of a scalar, too, which has none.
        std::int64_t none = 0;
        detail::call(stead_stream_step_view, get(), name.c_str(), start.data(), count.data(), &data,
                     count.empty() ? &none : at.strides_.data(), &array);
        at.handle_.reset(array);
        at.data_ = static_cast<const T *>(data);
        return at;
    }
    /// All of a variable where it lies.
    template <class T> stream::view<T> view(const std::string &name) const {
        const definition is = find(name);
        return view<T>(name, numbers(is.shape.size()), is.shape);
    }

    stead_stream_step *get() const noexcept { return handle_.get(); }

private:
    static definition told(const stead_stream_variable &v) {
        definition is{v.name, v.dtype, numbers(v.shape, v.shape + v.ndim), {}};
        if (v.dims) is.dims.assign(v.dims, v.dims + v.ndim);
        return is;
    }
    static attribute told(const stead_stream_attribute &a) {
        if (a.kind == STEAD_TEXT) {
            if (!a.is_list) return std::string(a.texts[0]);
            return std::vector<std::string>(a.texts, a.texts + a.count);
        }
        if (a.kind == STEAD_INT) {
            if (!a.is_list) return a.ints[0];
            return std::vector<std::int64_t>(a.ints, a.ints + a.count);
        }
        if (!a.is_list) return a.doubles[0];
        return std::vector<double>(a.doubles, a.doubles + a.count);
    }
    /// What a variable is whose elements are of this type, and of which a box has so many dimensions.
    template <class T>
    stead_stream_variable of(const std::string &name, const numbers &start, const numbers &count) const {
        stead_stream_variable v{};
        detail::call(stead_stream_step_find, get(), name.c_str(), &v, sizeof v);
        if (v.dtype != stead::detail::dtype<T>())
            throw error(kind::usage, "the elements of variable '" + name + "' are of another type");
        detail::check(v.ndim, start, "start");
        detail::check(v.ndim, count, "count");
        return v;
    }

    stead::detail::handle<stead_stream_step, &stead_stream_step_free> handle_;
};

class subscription;

/// Reads a stream, step by step or any step that is still there.
class reader {
public:
    /// Waits for the stream if nobody writes it yet.
    explicit reader(const std::string &name, const reader_options &how = {}) {
        const auto spaces = stead::detail::pointers(how.dataspaces);
        stead_stream_reader_options o{};
        o.size = sizeof o;
        o.group = how.group.c_str();
        o.rank = how.rank;
        o.ranks = how.ranks;
        o.start = how.start;
        o.behind = how.behind;
        o.queue = how.queue;
        o.keep = how.keep;
        o.timeout_ms = detail::milliseconds(how.timeout);
        o.threads = how.threads;
        o.dataspaces = spaces.data();
        o.dataspaces_count = spaces.size();
        o.coupling = how.coupling;
        const auto nodes = detail::others(how.nodes);
        o.nodes = nodes.empty() ? nullptr : nodes.data();
        o.nodes_count = nodes.empty() ? 0 : nodes.size() - 1;
        stead_stream_reader *r = nullptr;
        detail::call(stead_stream_reader_open, name.c_str(), &o, &r);
        handle_.reset(r);
    }

    /// The next step, as soon as all writers have ended it; none when they have closed the stream. Throws STEAD_PEER if one has ended
    /// in the middle.
    std::optional<step> next() { return taken(stead_stream_reader_next); }
    /// The same, for so long at most: none also if there is no step by then, and is_over tells which it is.
    template <class R, class P> std::optional<step> next_within(std::chrono::duration<R, P> time) {
        return taken(stead_stream_reader_next_within,
                     detail::milliseconds(time));
    }
    /// True after the last step was given, and none will come.
    bool is_over() const noexcept { return stead_stream_reader_is_over(get()); }
    /// The step of a number, if it is still there. Throws STEAD_NOT_FOUND if it is not.
    step at(std::uint64_t number) {
        stead_stream_step *s = nullptr;
        detail::call(stead_stream_reader_at, get(), number, &s);
        return step(s);
    }
    /// The step of a number, as soon as it is complete, with a variable in it, for so long at most. The reader is done with those before it.
    /// Throws STEAD_NOT_FOUND if it has gone, the stream ends before it, or it has no such variable; STEAD_TIMEOUT.
    template <class R, class P>
    step wait_for(const std::string &variable, std::uint64_t number, std::chrono::duration<R, P> time) {
        stead_stream_step *s = nullptr;
        detail::call(stead_stream_reader_wait_for, get(), variable.c_str(), number,
                     detail::milliseconds(time), &s);
        return step(s);
    }
    /// Has a thread of the library call a function with each step that comes, one after the other. The reader is the subscription's from
    /// then on.
    subscription subscribe(std::function<void(step)> call);
    /// What it has done so far, as JSON.
    std::string report() const {
        char *json = nullptr;
        detail::call(stead_stream_reader_report, get(), &json);
        return stead::detail::taken(json);
    }
    /// The numbers of the steps that are there now.
    std::vector<std::uint64_t> steps() const {
        std::vector<std::uint64_t> all;
        for (std::size_t n = 0;; all.resize(n)) {
            detail::call(stead_stream_reader_steps, get(), all.data(), all.size(), &n);
            if (n <= all.size()) return all.resize(n), all;
        }
    }

    /// The end of all steps.
    struct end_of_steps {};
    /// Step after step.
    class iterator {
    public:
        using iterator_category = std::input_iterator_tag;
        using value_type = step;
        using difference_type = std::ptrdiff_t;
        using pointer = step *;
        using reference = step &;
        explicit iterator(reader &of) : of_(&of), step_(of.next()) {}
        step &operator*() { return *step_; }
        step *operator->() { return &*step_; }
        iterator &operator++() {
            // What nobody has kept is free while the next one is waited for.
            step_.reset();
            step_ = of_->next();
            return *this;
        }
        bool operator!=(end_of_steps) const noexcept { return step_.has_value(); }

    private:
        reader *of_;
        std::optional<step> step_;
    };
    /// From the next step on.
    iterator begin() { return iterator(*this); }
    end_of_steps end() const noexcept { return {}; }

    stead_stream_reader *get() const noexcept { return handle_.get(); }

private:
    template <class F, class... A> std::optional<step> taken(F f, A... more) {
        stead_stream_step *s = nullptr;
        detail::call(f, get(), more..., &s);
        if (!s) return std::nullopt;
        return step(s);
    }

    stead::detail::handle<stead_stream_reader, &stead_stream_reader_free> handle_;
};

/// Calls a function with each step of a stream, in a thread of the library. It ends with the stream, when it goes, when no step comes within
/// the timeout of the reader, and when the function or the stream fails: `join` throws what has failed, with for whom it was waited. After the
/// function has thrown it is called no more, and steps are let go. It must not go within its own function.
class subscription {
public:
    subscription(subscription &&) noexcept = default;

    /// True once the function was called for the last time.
    bool is_over() const {
        const std::lock_guard<std::mutex> lock(calls_->mutex);
        return calls_->is_over;
    }
    /// Waits until the function was called for the last time: the stream has ended or failed, or no step came in time.
    void join() {
        {
            std::unique_lock<std::mutex> lock(calls_->mutex);
            calls_->ended.wait(lock, [&] { return calls_->is_over; });
        }
        handle_.reset();
        if (calls_->failed) std::rethrow_exception(calls_->failed);
    }

private:
    friend class reader;
    /// What its thread has of it, where it stays.
    struct calls {
        std::function<void(step)> call;
        std::mutex mutex{};
        std::condition_variable ended{};
        bool is_over = false;
        std::exception_ptr failed{};

        void end(std::exception_ptr why) {
            const std::lock_guard<std::mutex> lock(mutex);
            if (is_over) return;
            is_over = true;
            failed = std::move(why);
            ended.notify_all();
        }
    };
    subscription(stead_stream_reader *from, std::function<void(step)> call) : calls_(new calls{std::move(call)}) {
        stead_stream_subscription *s = nullptr;
        detail::call(stead_stream_subscribe, from, &subscription::called, static_cast<void *>(calls_.get()), &s);
        handle_.reset(s);
    }
    static void called(stead_stream_step *given, stead_error *e, void *user) {
        auto &to = *static_cast<calls *>(user);
        if (!given) return to.end(e ? std::make_exception_ptr(error(stead_error_kind(e), e)) : nullptr);
        step one(given);
        // Only this thread sets it.
        if (to.is_over) return;
        try {
            to.call(std::move(one));
        } catch (...) {
            to.end(std::current_exception());
        }
    }

    // It outlives the handle, whose thread has it.
    std::unique_ptr<calls> calls_;
    stead::detail::handle<stead_stream_subscription, &stead_stream_subscription_free> handle_;
};

inline subscription reader::subscribe(std::function<void(step)> call) {
    return subscription(handle_.release(), std::move(call));
}

/// The streams of this user on this node and on others, as JSON: see stead_stream_list.
inline std::string list(const survey &of = {}) { return detail::told(stead_stream_list, of); }
/// What there is to know of a stream, as JSON: see stead_stream_describe.
inline std::string describe(const std::string &name, const survey &of = {}) {
    return detail::told(stead_stream_describe, of, name.c_str());
}
/// The streams that were recorded in a folder, and in the folders in it, as JSON: see stead_stream_recordings.
inline std::string recordings(const std::string &location, const std::vector<std::string> &dataspaces = {}) {
    const auto spaces = stead::detail::pointers(dataspaces);
    char *json = nullptr;
    detail::call(stead_stream_recordings, spaces.data(), spaces.size(), location.c_str(), &json);
    return stead::detail::taken(json);
}
/// Who will get what from whom of a step, as JSON; as many readers as `readers` are assumed beside those that are there: see
/// stead_stream_explain.
inline std::string explain(const std::string &name, std::uint64_t readers = 0, const survey &of = {}) {
    return detail::told(stead_stream_explain, of, name.c_str(), readers);
}
/// Removes a stream of this node and those of the name on others, as stead_stream_remove_on_nodes does: what it tells, as JSON.
inline std::string remove_on_nodes(const std::string &name, bool force = false, const survey &of = {}) {
    return detail::told(stead_stream_remove_on_nodes, of, name.c_str(), force);
}
/// Removes a stream of this node; with `force` also one that is written or read.
inline void remove(const std::string &name, bool force = false, const std::vector<std::string> &dataspaces = {}) {
    const auto spaces = stead::detail::pointers(dataspaces);
    detail::call(stead_stream_remove, spaces.data(), spaces.size(), name.c_str(), force);
}

} // namespace stream
} // namespace stead

#endif
