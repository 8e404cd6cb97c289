// stead: keep the data home; send the work. The C++ face: a header over stead.h, C++17, std::span where there is
// C++20. Link with libstead (pkg-config stead, or CMake's stead::stead).
//
//     stead::dataset flights = stead::dataset::open("flights.csv");
//     stead::report r = flights.run(stead::request().kernel("mean:arr_delay").where("dep_delay > 0"));
//     double mean = r["mean:arr_delay"].number();
//
// Handles are move-only and free themselves. Failures are exceptions of type stead::error. Values keep their report
// alive, so a std::string_view of one is good as long as the value. Threads: as in stead.h; datasets, reports and
// values may be used by several threads at the same time.

#ifndef STEAD_HPP
#define STEAD_HPP

#include "stead.h"

#include <array>
#include <cstdint>
#include <exception>
#include <functional>
#include <initializer_list>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>
#if __cplusplus >= 202002L
#include <span>
#endif

namespace stead {

#if defined(__cpp_lib_span)
/// A stretch of values that lie side by side.
template <class T> using span = std::span<T>;
#else
/// A stretch of values that lie side by side: as much of std::span as is needed.
template <class T> class span {
public:
    constexpr span() noexcept = default;
    constexpr span(T *data, std::size_t size) noexcept : data_(data), size_(size) {}
    constexpr T *data() const noexcept { return data_; }
    constexpr std::size_t size() const noexcept { return size_; }
    constexpr bool empty() const noexcept { return size_ == 0; }
    constexpr T &operator[](std::size_t i) const { return data_[i]; }
    constexpr T *begin() const noexcept { return data_; }
    constexpr T *end() const noexcept { return data_ + size_; }

private:
    T *data_ = nullptr;
    std::size_t size_ = 0;
};
#endif

/// What kind of failure it is; the numbers are those of stead.h.
enum class kind : int {
    usage = STEAD_USAGE,
    not_found = STEAD_NOT_FOUND,
    permission = STEAD_PERMISSION,
    format = STEAD_FORMAT,
    data = STEAD_DATA,
    changed = STEAD_CHANGED,
    limit = STEAD_LIMIT,
    no_space = STEAD_NO_SPACE,
    io = STEAD_IO,
    cancelled = STEAD_CANCELLED,
    peer = STEAD_PEER,
    timeout = STEAD_TIMEOUT,
    internal = STEAD_INTERNAL,
};

/// A failure. what() is the whole message in one line, with its place.
class error : public std::runtime_error {
public:
    error(stead::kind kind, const std::string &message) : std::runtime_error(message), kind_(kind) {}

    /// Takes over an error of the C interface, and frees it.
    error(stead_status status, stead_error *e)
        : std::runtime_error(e ? stead_error_message(e) : stead_last_message()),
          kind_(static_cast<stead::kind>(status)) {
        std::unique_ptr<stead_error, void (*)(stead_error *)> owner(e, stead_error_free);
        const auto text = [](const char *s) { return std::string(s ? s : ""); };
        if (!e) return;
        hint_ = text(stead_error_hint(e));
        path_ = text(stead_error_path(e));
        column_ = text(stead_error_column(e));
        line_ = stead_error_line(e);
        std::uint64_t offset = 0;
        if (stead_error_offset(e, &offset)) offset_ = offset;
        retryable_ = stead_error_is_retryable(e);
    }

    /// What kind of failure it is.
    stead::kind kind() const noexcept { return kind_; }
    /// What can be done about it, or "".
    const std::string &hint() const noexcept { return hint_; }
    /// The file, or "".
    const std::string &path() const noexcept { return path_; }
    /// The column, or "".
    const std::string &column() const noexcept { return column_; }
    /// The line in the (decompressed) file, from 1; 0 if it is not known.
    std::uint64_t line() const noexcept { return line_; }
    /// The byte offset in the (decompressed) file, if it is known.
    std::optional<std::uint64_t> offset() const noexcept { return offset_; }
    /// True if the same call may succeed when it is made again.
    bool is_retryable() const noexcept { return retryable_; }

private:
    stead::kind kind_;
    std::string hint_, path_, column_;
    std::uint64_t line_ = 0;
    std::optional<std::uint64_t> offset_;
    bool retryable_ = false;
};

namespace detail {

/// Calls a function of the C interface, whose last argument is the place for the error; throws what it says.
template <class F, class... A> void call(F f, A... arguments) {
    stead_error *e = nullptr;
    const stead_status status = f(arguments..., &e);
    if (status != STEAD_OK) throw error(status, e);
}

/// Frees with a function of the C interface.
template <auto F> struct freeing {
    template <class T> void operator()(T *p) const noexcept { F(p); }
};

template <class T, auto F> using handle = std::unique_ptr<T, freeing<F>>;

/// A text of the C interface that is ours to free.
inline std::string taken(char *text) {
    const handle<char, &stead_text_free> owner(text);
    return text ? std::string(text) : std::string();
}

/// A text that lives elsewhere, or "".
inline std::string_view seen(const char *text) { return text ? std::string_view(text) : std::string_view(); }

/// A text that must be there: it is not where a handle is good no more or an index too large.
inline std::string_view there(const char *text) {
    if (!text) throw error(kind::usage, stead_last_message());
    return text;
}

/// Pointers to the texts of a list.
inline std::vector<const char *> pointers(const std::vector<std::string> &all) {
    std::vector<const char *> p;
    for (const std::string &s : all) p.push_back(s.c_str());
    return p;
}

/// The number of an element type.
template <class T> constexpr stead_dtype dtype() {
    static_assert(std::is_arithmetic_v<T> && !std::is_same_v<T, bool> && sizeof(T) <= 8,
                  "elements are floats of 32 or 64 bits or integers of 8 to 64 bits");
    if constexpr (std::is_floating_point_v<T>) {
        return sizeof(T) == 4 ? STEAD_F32 : STEAD_F64;
    } else {
        constexpr std::array<stead_dtype, 4> with_sign{STEAD_I8, STEAD_I16, STEAD_I32, STEAD_I64};
        constexpr std::array<stead_dtype, 4> without{STEAD_U8, STEAD_U16, STEAD_U32, STEAD_U64};
        constexpr std::size_t i = sizeof(T) == 1 ? 0 : sizeof(T) == 2 ? 1 : sizeof(T) == 4 ? 2 : 3;
        return std::is_signed_v<T> ? with_sign[i] : without[i];
    }
}

/// Ends the life of what `user` points to.
template <class T> void drop(void *user) { delete static_cast<T *>(user); }

} // namespace detail

/// The version of the library that is running.
inline std::string_view version() { return stead_version(); }

/// A missing value, for results and for arrays in memory.
inline double missing() { return stead_missing(); }

/// True for a missing value in a column of numbers, and for no other NaN.
inline bool is_missing(double x) { return stead_is_missing(x); }

/// How to open a dataset; what is not set is detected.
class options {
public:
    options() {
        stead_options *o = nullptr;
        detail::call(stead_options_new, &o);
        handle_.reset(o);
    }

    /// Sets one option by the name that it has on the command line: see stead_options_set.
    options &set(const std::string &name, const std::string &value) & {
        detail::call(stead_options_set, get(), name.c_str(), value.c_str());
        return *this;
    }
    options &&set(const std::string &name, const std::string &value) && {
        return std::move(set(name, value));
    }

    /// Column names, in place of those in the header or of positions.
    options &names(const std::vector<std::string> &names) & {
        const auto p = detail::pointers(names);
        detail::call(stead_options_set_names, get(), p.data(), p.size());
        return *this;
    }
    options &&names(const std::vector<std::string> &all) && { return std::move(names(all)); }

    /// The tokens that mean "no value", in place of the usual ones.
    options &missing(const std::vector<std::string> &tokens) & {
        const auto p = detail::pointers(tokens);
        detail::call(stead_options_set_missing, get(), p.data(), p.size());
        return *this;
    }
    options &&missing(const std::vector<std::string> &tokens) && { return std::move(missing(tokens)); }

    /// The shape of a raw array.
    options &shape(const std::vector<std::uint64_t> &shape) & {
        detail::call(stead_options_set_shape, get(), shape.data(), shape.size());
        return *this;
    }
    options &&shape(const std::vector<std::uint64_t> &lengths) && { return std::move(shape(lengths)); }

    stead_options *get() const noexcept { return handle_.get(); }

private:
    detail::handle<stead_options, &stead_options_free> handle_;
};

/// Stops runs from a signal handler or another thread.
class cancel_flag {
public:
    cancel_flag() {
        stead_cancel *c = nullptr;
        detail::call(stead_cancel_new, &c);
        handle_.reset(c);
    }
    /// Sets the flag. Safe in a signal handler.
    void request() const noexcept { stead_cancel_request(get()); }
    /// True if it is set. Safe in a signal handler.
    bool is_requested() const noexcept { return stead_cancel_is_requested(get()); }
    /// Takes it back, for the next run.
    void reset() const noexcept { stead_cancel_reset(get()); }
    stead_cancel *get() const noexcept { return handle_.get(); }

private:
    detail::handle<stead_cancel, &stead_cancel_free> handle_;
};

/// What a value is.
enum class type : int {
    null = STEAD_NULL,
    boolean = STEAD_BOOL,
    count = STEAD_INT,
    number = STEAD_DOUBLE,
    text = STEAD_TEXT,
    list = STEAD_LIST,
    map = STEAD_MAP,
};

/// Numbers in rows, one after the other.
struct matrix {
    std::size_t rows = 0, columns = 0;
    std::vector<double> data;

    double operator()(std::size_t i, std::size_t j) const { return data[i * columns + j]; }
    span<const double> row(std::size_t i) const { return {data.data() + i * columns, columns}; }
};

/// A value of a report, which it keeps alive. Copied freely.
class value {
public:
    /// Null, bool, count, number or text; a list or a map is itself.
    using variant = std::variant<std::monostate, bool, std::uint64_t, double, std::string_view, value>;

    value(std::shared_ptr<stead_report> report, stead_value v) : report_(std::move(report)), v_(v) {}

    stead::type type() const { return static_cast<stead::type>(stead_value_type(v_)); }
    bool is_null() const { return type() == stead::type::null; }

    /// The bool. Throws if it is something else, as its like.
    bool boolean() const { return one<bool>(stead_value_bool); }
    /// The count.
    std::uint64_t count() const { return one<std::uint64_t>(stead_value_int); }
    /// The number; a count is one too.
    double number() const { return one<double>(stead_value_double); }
    /// The text, which lives as long as a value of its report does.
    std::string_view text() const {
        std::size_t n = 0;
        const char *s = stead_value_text(v_, &n);
        return {detail::there(s).data(), n};
    }

    /// Number of members of a list or a map; 0 for any other value.
    std::size_t size() const { return stead_value_length(v_); }
    /// Member `i` of a list or a map.
    value at(std::size_t i) const {
        stead_value m{};
        detail::call(stead_value_at, v_, i, &m);
        return {report_, m};
    }
    /// The member of a map with this name.
    value at(const std::string &key) const {
        stead_value m{};
        detail::call(stead_value_get, v_, key.c_str(), &m);
        return {report_, m};
    }
    template <class I, class = std::enable_if_t<std::is_integral_v<I>>> value operator[](I i) const {
        return at(static_cast<std::size_t>(i));
    }
    value operator[](const std::string &key) const { return at(key); }
    value operator[](const char *key) const { return at(std::string(key)); }
    /// The name of member `i` of a map.
    std::string_view key(std::size_t i) const { return detail::there(stead_value_key(v_, i)); }
    /// The members of a map, in the order to show them.
    std::vector<std::pair<std::string_view, value>> items() const {
        std::vector<std::pair<std::string_view, value>> all;
        for (std::size_t i = 0, n = size(); i < n; i++) all.emplace_back(key(i), at(i));
        return all;
    }

    /// Lengths of nested lists of numbers, outermost first; empty for any other value.
    std::vector<std::size_t> shape() const {
        std::vector<std::size_t> lengths(stead_value_shape(v_, nullptr, 0));
        stead_value_shape(v_, lengths.data(), lengths.size());
        return lengths;
    }
    /// The numbers of nested lists of one length, the innermost running fastest. Null becomes NaN.
    std::vector<double> to_vector() const {
        std::size_t n = 1;
        for (std::size_t d : shape()) n *= d;
        std::vector<double> all(n);
        detail::call(stead_value_doubles, v_, all.data(), all.size(), &n);
        all.resize(n);
        return all;
    }
    /// A list of lists of numbers of one length, or a list as one row.
    matrix to_matrix() const {
        const std::vector<std::size_t> s = shape();
        if (s.size() == 1) return {1, s[0], to_vector()};
        if (s.size() != 2) throw error(kind::usage, "this value is no matrix");
        return {s[0], s[1], to_vector()};
    }

    /// The value for std::visit.
    variant get() const {
        switch (type()) {
        case stead::type::null: return std::monostate();
        case stead::type::boolean: return boolean();
        case stead::type::count: return count();
        case stead::type::number: return number();
        case stead::type::text: return text();
        default: return *this;
        }
    }

    /// The value as JSON.
    std::string json() const {
        char *s = nullptr;
        detail::call(stead_value_json, v_, &s);
        return detail::taken(s);
    }

private:
    template <class T, class F> T one(F f) const {
        T out{};
        detail::call(f, v_, &out);
        return out;
    }

    std::shared_ptr<stead_report> report_;
    stead_value v_;
};

/// Results, what was done, and what it took.
class report {
public:
    explicit report(stead_report *r) : handle_(r, stead_report_free) {}
    report(report &&) noexcept = default;
    report &operator=(report &&) noexcept = default;
    report(const report &) = delete;
    report &operator=(const report &) = delete;

    /// Number of results.
    std::size_t size() const { return stead_report_count(get()); }
    /// The name of result `i`. Lives as long as the report.
    std::string_view name(std::size_t i) const { return detail::there(stead_report_name(get(), i)); }
    /// Result `i`.
    value at(std::size_t i) const {
        stead_value v{};
        detail::call(stead_report_result_at, get(), i, &v);
        return {handle_, v};
    }
    /// The result called `name`: a specification, or the name of a kernel of one's own.
    value at(const std::string &name) const {
        stead_value v{};
        detail::call(stead_report_result, get(), name.c_str(), &v);
        return {handle_, v};
    }
    value operator[](const std::string &name) const { return at(name); }

    /// The report as the JSON document of `stead run --format json`. Lives as long as the report, as its like.
    std::string_view json() const { return detail::there(stead_report_json(get())); }
    /// What was decided, as JSON.
    std::string_view plan() const { return detail::there(stead_report_plan(get())); }
    /// What it took, as JSON.
    std::string_view metrics_json() const { return detail::there(stead_report_metrics_json(get())); }
    /// What it took.
    stead_metrics metrics() const {
        stead_metrics m{};
        detail::call(stead_report_metrics, get(), &m, sizeof m);
        return m;
    }
    /// Draws histograms and grouped results into an SVG file.
    void plot(const std::string &path) const { detail::call(stead_report_plot, get(), path.c_str()); }

    stead_report *get() const noexcept { return handle_.get(); }

private:
    std::shared_ptr<stead_report> handle_;
};

class request;

/// One column of a table in memory. A column that was given to a dataset is empty.
class column {
public:
    /// Lends `size` elements, which must stay as they are as long as the dataset lives.
    template <class T>
    column(std::string name, const T *data, std::size_t size)
        : name_(std::move(name)), data_(data), size_(size), dtype_(detail::dtype<T>()) {}

    /// Gives a vector away.
    template <class T> column(std::string name, std::vector<T> &&data) : column(std::move(name), nullptr, data) {}

private:
    friend class dataset;

    template <class T> column(std::string name, std::nullptr_t, std::vector<T> &data)
        : name_(std::move(name)), dtype_(detail::dtype<T>()) {
        auto owned = std::make_unique<std::vector<T>>(std::move(data));
        data_ = owned->data();
        size_ = owned->size();
        owner_ = {owned.release(), detail::drop<std::vector<T>>};
    }

    std::string name_;
    const void *data_ = nullptr;
    std::size_t size_ = 0;
    stead_dtype dtype_ = 0;
    std::unique_ptr<void, void (*)(void *)> owner_{nullptr, [](void *) {}};
};

/// Files, or memory, that are read as one.
class dataset {
public:
    explicit dataset(stead_dataset *d) : handle_(d) {}

    /// Opens a file, a glob or a directory, with everything detected but for what the options say.
    static dataset open(const std::string &path) { return open_with(path, nullptr); }
    static dataset open(const std::string &path, const options &o) { return open_with(path, o.get()); }
    /// Opens several as one.
    static dataset open(const std::vector<std::string> &paths) { return open_with(paths, nullptr); }
    static dataset open(const std::vector<std::string> &paths, const options &o) {
        return open_with(paths, o.get());
    }

    /// Bytes in memory, which must stay as they are as long as the dataset lives: text, .npy, or raw elements. The
    /// name says as much about the format as a file's name does.
    static dataset bytes(std::string_view data, const std::string &name = "memory") {
        return bytes_with(data, name, nullptr);
    }
    static dataset bytes(std::string_view data, const std::string &name, const options &o) {
        return bytes_with(data, name, o.get());
    }

    /// An array in memory, which must stay as it is as long as the dataset lives. A 2-d array has a column for each
    /// second index.
    template <class T>
    static dataset array(const T *data, const std::vector<std::uint64_t> &shape,
                         stead_order order = STEAD_ORDER_C, const std::string &name = "array") {
        return array_with(data, detail::dtype<T>(), shape, order, name, nullptr, nullptr);
    }
    /// An array that is given away.
    template <class T>
    static dataset array(std::vector<T> &&data, const std::vector<std::uint64_t> &shape,
                         stead_order order = STEAD_ORDER_C, const std::string &name = "array") {
        std::uint64_t n = 1;
        for (const std::uint64_t d : shape) n *= d;
        if (n != data.size()) throw error(kind::usage, "the shape has not as many elements as the vector");
        auto owned = std::make_unique<std::vector<T>>(std::move(data));
        const T *p = owned->data();
        // From here on it is released in any case.
        return array_with(p, detail::dtype<T>(), shape, order, name, detail::drop<std::vector<T>>, owned.release());
    }
#if defined(__cpp_lib_span)
    /// A 1-d array, which must stay as it is as long as the dataset lives.
    template <class T> static dataset array(std::span<const T> data, const std::string &name = "array") {
        return array(data.data(), {data.size()}, STEAD_ORDER_C, name);
    }
#endif

    /// Columns of one length.
    static dataset table(std::vector<column> columns) {
        std::vector<stead_column> all;
        for (column &c : columns) {
            if (c.size_ != columns[0].size_) throw error(kind::usage, "the columns have different lengths");
            all.push_back({c.name_.c_str(), c.data_, c.dtype_, c.owner_.get_deleter(), c.owner_.get()});
        }
        for (column &c : columns) c.owner_.release();
        stead_dataset *d = nullptr;
        detail::call(stead_open_table, all.data(), all.size(), columns.empty() ? 0 : columns[0].size_, &d);
        return dataset(d);
    }

    /// The format: "csv", "tsv", "lines", "records", "npy", "raw", "tipsy", "table", "recorded".
    std::string_view format() const { return detail::there(stead_dataset_format(get())); }
    /// Number of columns.
    std::size_t columns() const { return stead_dataset_column_count(get()); }
    /// The name of column `i`. Lives as long as the dataset, as its like.
    std::string_view column_name(std::size_t i) const { return detail::there(stead_dataset_column_name(get(), i)); }
    /// The type of column `i`: "number", "text", "f64", ...
    std::string_view column_type(std::size_t i) const { return detail::there(stead_dataset_column_type(get(), i)); }
    /// The index of the column that a name or a position means.
    std::size_t find_column(const std::string &name) const {
        std::size_t i = 0;
        detail::call(stead_dataset_find_column, get(), name.c_str(), &i);
        return i;
    }
    /// The shape of an array; empty for other data.
    std::vector<std::uint64_t> shape() const {
        std::vector<std::uint64_t> s(stead_dataset_shape(get(), nullptr, 0));
        stead_dataset_shape(get(), s.data(), s.size());
        return s;
    }
    /// Number of files.
    std::size_t files() const { return stead_dataset_file_count(get()); }
    /// The name of file `i`.
    std::string_view file(std::size_t i) const { return detail::there(stead_dataset_file(get(), i)); }
    /// Bytes of all files, as they lie.
    std::uint64_t bytes() const { return stead_dataset_bytes(get()); }
    /// What it is, with its first rows, as JSON.
    std::string describe(std::size_t rows = 5) const {
        char *s = nullptr;
        detail::call(stead_dataset_describe, get(), rows, &s);
        return detail::taken(s);
    }

    /// Runs a request and waits for its end.
    report run(const request &r) const;
    /// Runs kernels by their specifications.
    report run(std::initializer_list<std::string> specs) const;

    stead_dataset *get() const noexcept { return handle_.get(); }

private:
    static dataset open_with(const std::string &path, stead_options *o) {
        stead_dataset *d = nullptr;
        detail::call(stead_open, path.c_str(), o, &d);
        return dataset(d);
    }
    static dataset open_with(const std::vector<std::string> &paths, stead_options *o) {
        const auto p = detail::pointers(paths);
        stead_dataset *d = nullptr;
        detail::call(stead_open_all, p.data(), p.size(), o, &d);
        return dataset(d);
    }
    static dataset bytes_with(std::string_view data, const std::string &name, stead_options *o) {
        stead_dataset *d = nullptr;
        detail::call(stead_open_bytes, name.c_str(), data.data(), data.size(), o, nullptr, nullptr, &d);
        return dataset(d);
    }
    static dataset array_with(const void *data, stead_dtype dtype, const std::vector<std::uint64_t> &shape,
                              stead_order order, const std::string &name, stead_release_fn release, void *user) {
        stead_dataset *d = nullptr;
        detail::call(stead_open_array, name.c_str(), data, dtype, shape.size(), shape.data(), order, release, user, &d);
        return dataset(d);
    }

    detail::handle<stead_dataset, &stead_dataset_free> handle_;
};

} // namespace stead

#include "stead_flow.hpp"
#include "stead_kernel.hpp"
#include "stead_layout.hpp"
#include "stead_read.hpp"
#include "stead_reader.hpp"
#include "stead_stage.hpp"
#include "stead_stream.hpp"
#include "stead_tipsy.hpp"

#endif
