// Read sessions in C++: many tasks read a file, few readers fetch it. Included by stead.hpp.
//
//     stead::File file("particles.bin");
//     stead::ReadSession session = file.session();
//     std::future<stead::view> part = session.read(task * share, share);   // or read_into, read_many, ...
//     use(part.get().data());
//
// In a coroutine (C++20): `stead::view part = co_await session.begin(offset, size);`. For event loops and schedulers:
// stead::read_queue. FileReader, in stead_reader.hpp, is a std::istream over a session.
//
// Failures are exceptions of type stead::error. Threads: everything may be used from any thread; one session serves any
// number of them.

#if !defined(STEAD_HPP)
// It is a part of that one, which includes it when its own part is there.
#include "stead.hpp"
#elif !defined(STEAD_READ_HPP)
#define STEAD_READ_HPP

#include <chrono>
#include <future>
#if defined(__cpp_impl_coroutine) && defined(__has_include)
#if __has_include(<coroutine>)
#include <coroutine>
#endif
#endif

namespace stead {

/// How to read a file in sessions; what is 0 is chosen.
struct read_options {
    /// Reader threads at most.
    std::size_t readers = 0;
    /// Bytes of a block.
    std::size_t block = 0;
    /// Blocks in flight for each reader.
    std::size_t depth = 0;
    /// Bytes of memory for blocks.
    std::uint64_t memory = 0;
    /// After how long a read that has no answer fails.
    std::chrono::milliseconds deadline{0};
    /// STEAD_READ_ON_DEMAND and so on, or-ed together.
    std::uint32_t flags = 0;

    /// As C has it.
    stead_read_options get() const {
        stead_read_options o{};
        o.size = sizeof o;
        o.readers = readers;
        o.block = block;
        o.depth = depth;
        o.memory = memory;
        o.deadline_ms = deadline.count() > 0 ? static_cast<std::uint64_t>(deadline.count()) : 0;
        o.flags = flags;
        return o;
    }
};

/// Bytes that a read brought. They are shared with the page cache or with others where that can be; a view that is kept
/// keeps its block from being used for other bytes. Moved, not copied.
class view {
public:
    view() noexcept = default;
    /// Takes over a view of the C interface.
    explicit view(stead_view v) noexcept : v_(v) {}
    view(view &&other) noexcept : v_(std::exchange(other.v_, stead_view{})) {}
    view &operator=(view &&other) noexcept {
        std::swap(v_, other.v_);
        return *this;
    }
    ~view() {
        if (v_.id) stead_view_release(&v_);
    }

    /// The first byte.
    const char *data() const noexcept { return static_cast<const char *>(v_.data); }
    /// How many there are.
    std::size_t size() const noexcept { return v_.size; }
    bool empty() const noexcept { return v_.size == 0; }
    const char *begin() const noexcept { return data(); }
    const char *end() const noexcept { return data() + size(); }
    char operator[](std::size_t i) const noexcept { return data()[i]; }
    operator span<const char>() const noexcept { return {data(), size()}; }
    /// They as text.
    std::string_view text() const noexcept { return {data(), size()}; }
    /// Elements of another type. Throws if the bytes are no whole number of them, or do not lie at an address where they
    /// may.
    template <class T> span<const T> as() const {
        static_assert(std::is_trivially_copyable_v<T>, "elements are plain bytes");
        if (empty()) return {};
        if (size() % sizeof(T) || reinterpret_cast<std::uintptr_t>(data()) % alignof(T))
            throw error(kind::usage, "the bytes of a view are no whole elements, or lie at an odd address");
        return {reinterpret_cast<const T *>(data()), size() / sizeof(T)};
    }
    /// Throws if the file became shorter while its bytes were looked at, so that they may have been zeros.
    void check() const { detail::call(stead_view_check, &v_); }
    /// Where the bytes lie: STEAD_IN_CACHE and so on.
    stead_place place() const { return stead_view_place(&v_); }
    /// Copies bytes that lie in a block of the session, so that it can be used for others: for views that are kept.
    void own() { detail::call(stead_view_own, &v_); }
    /// Lets go of the bytes.
    void reset() noexcept { view().swap(*this); }
    void swap(view &other) noexcept { std::swap(v_, other.v_); }

private:
    stead_view v_{};
};

namespace detail {
class awaiter;
}

/// A read under way, which is given up when its handle goes. In a coroutine, `co_await` it: it goes on in the thread that
/// brings the bytes, which must not be kept. To wait there for another read in another way than by `co_await` is an error
/// (with a std::future it is to wait for oneself), and long computations belong elsewhere.
class pending {
public:
    explicit pending(stead_pending *p) noexcept : handle_(p) {}

    /// True if the answer is there.
    bool ready() const { return stead_pending_wait(get(), 0); }
    /// Waits for the answer no longer than that; true if it is there. Not at all in a thread that brings bytes.
    template <class R, class P> bool wait_for(std::chrono::duration<R, P> time) const {
        const auto ms = std::chrono::ceil<std::chrono::milliseconds>(time).count();
        return stead_pending_wait(get(), ms < 0 ? 0 : static_cast<std::int64_t>(ms));
    }
    /// Waits for the answer and takes it. Throws if it is not there in a thread that brings bytes, which waits for itself.
    view take() {
        stead_view v{};
        const auto owner = std::move(handle_);
        detail::call(stead_pending_take, owner.get(), &v);
        return view(v);
    }
    /// Gives the read up: nothing is written to its buffer afterwards.
    void cancel() noexcept { handle_.reset(); }

    stead_pending *get() const noexcept { return handle_.get(); }
    stead_pending *release() noexcept { return handle_.release(); }

#if defined(__cpp_lib_coroutine)
    /// The bytes. The coroutine goes on in the thread that brings them, or at once where they are there.
    detail::awaiter operator co_await() && noexcept;
#endif

private:
    detail::handle<stead_pending, &stead_pending_free> handle_;
};

#if defined(__cpp_lib_coroutine)
/// What `co_await` of a read does.
class detail::awaiter {
public:
    explicit awaiter(pending &&p) noexcept : pending_(std::move(p)) {}
    awaiter(awaiter &&) = delete;
    bool await_ready() const { return pending_.ready(); }
    void await_suspend(std::coroutine_handle<> waiting) {
        waiting_ = waiting;
        told_ = true;
        call(stead_pending_then, pending_.get(), &awaiter::done, static_cast<void *>(this));
    }
    view await_resume() {
        if (!told_) return pending_.take();
        if (stead_error *e = std::exchange(error_, nullptr)) throw error(stead_error_kind(e), e);
        return std::move(view_);
    }
    ~awaiter() {
        pending_.cancel();
        stead_error_free(error_);
    }

private:
    static void done(stead_view v, stead_error *e, void *user) noexcept {
        awaiter *self = static_cast<awaiter *>(user);
        self->view_ = view(v);
        self->error_ = e;
        self->waiting_.resume();
    }

    pending pending_;
    std::coroutine_handle<> waiting_;
    view view_;
    stead_error *error_ = nullptr;
    bool told_ = false;
};

inline detail::awaiter pending::operator co_await() && noexcept { return detail::awaiter(std::move(*this)); }
#endif

namespace detail {

/// The promise of a read, until it is kept.
template <class T> struct promised {
    std::promise<T> promise;
    T value;
    // After the value, so that the read is given up before its buffer goes.
    pending reading{nullptr};

    explicit promised(T v) : value(std::move(v)) {}

    void keep(view bytes) {
        try {
            if constexpr (std::is_same_v<T, view>) {
                // A future may wait for long until somebody takes its value.
                bytes.own();
                promise.set_value(std::move(bytes));
            } else {
                promise.set_value(std::move(value));
            }
        } catch (...) {
            promise.set_exception(std::current_exception());
        }
    }

    /// Called with the answer.
    static void done(stead_view v, stead_error *e, void *user) noexcept {
        const std::unique_ptr<promised> self(static_cast<promised *>(user));
        view bytes(v);
        if (e) {
            self->promise.set_exception(std::make_exception_ptr(error(stead_error_kind(e), e)));
        } else {
            self->keep(std::move(bytes));
        }
    }

    /// Has the promise kept when the answer comes, or at once.
    static std::future<T> begin(std::unique_ptr<promised> self) {
        std::future<T> future = self->promise.get_future();
        void *user = self.get();
        stead_error *e = nullptr;
        const stead_status status = stead_pending_then(self->reading.get(), &promised::done, user, &e);
        if (status != STEAD_OK) throw error(status, e);
        // The answer has it, or had it.
        static_cast<void>(self.release());
        return future;
    }
};

} // namespace detail

/// A range of a file.
using range = stead_range;

class read_queue;

/// A range of a file that many tasks read while few readers fetch it. Ends when it is closed or goes; a FileReader over
/// it keeps it.
class ReadSession {
public:
    explicit ReadSession(stead_session *s) : handle_(s, end) {}
    ReadSession(ReadSession &&) noexcept = default;
    ReadSession &operator=(ReadSession &&) noexcept = default;
    ReadSession(const ReadSession &) = delete;
    ReadSession &operator=(const ReadSession &) = delete;

    /// The offset of its first byte in the file.
    std::uint64_t offset() const { return stead_session_offset(get()); }
    /// How many bytes it has.
    std::uint64_t size() const { return stead_session_length(get()); }

    /// The same session, for reads (in whatever way, those of a FileReader, too) that fail after `deadline`; one of 0 is
    /// that of the options. The session goes on until both are closed.
    ReadSession within(std::chrono::milliseconds deadline) const {
        stead_session *s = nullptr;
        const std::uint64_t ms = deadline.count() > 0 ? static_cast<std::uint64_t>(deadline.count()) : 0;
        detail::call(stead_session_within, get(), ms, &s);
        return ReadSession(s);
    }

    /// Asks for `size` bytes at `offset` of the file. A future that is answered holds a copy of them where the session has
    /// blocks in memory, beside the session's budget.
    std::future<view> read(std::uint64_t offset, std::size_t size) const {
        auto promised = std::make_unique<detail::promised<view>>(view());
        promised->reading = begin(offset, size);
        return detail::promised<view>::begin(std::move(promised));
    }
    /// Fills a vector (or what has data() and size()) from `offset` and gives it back.
    template <class Buffer> std::future<Buffer> read_into(std::uint64_t offset, Buffer buffer) const {
        auto promised = std::make_unique<detail::promised<Buffer>>(std::move(buffer));
        Buffer &target = promised->value;
        promised->reading = begin_into(offset, target.data(), target.size() * sizeof(*target.data()));
        return detail::promised<Buffer>::begin(std::move(promised));
    }
    /// Asks for several ranges at once.
    std::vector<pending> read_many(const std::vector<range> &ranges) const {
        std::vector<stead_pending *> all(ranges.size());
        std::vector<pending> reads;
        reads.reserve(ranges.size());
        detail::call(stead_read_many, get(), ranges.data(), ranges.size(), all.data());
        for (stead_pending *p : all) reads.emplace_back(p);
        return reads;
    }
    /// Asks for `count` pieces of `size` bytes whose starts are `stride` apart; they come one after the other.
    pending read_strided(std::uint64_t offset, std::size_t size, std::size_t stride, std::size_t count) const {
        stead_pending *p = nullptr;
        detail::call(stead_read_strided, get(), offset, size, stride, count, &p);
        return pending(p);
    }
    /// As read, with a handle to wait by, to give up, or to `co_await`.
    pending begin(std::uint64_t offset, std::size_t size) const {
        stead_pending *p = nullptr;
        detail::call(stead_read_begin, get(), offset, size, &p);
        return pending(p);
    }
    /// As begin, into memory that must be left alone until the answer was taken or the read given up.
    pending begin_into(std::uint64_t offset, void *buffer, std::size_t size) const {
        stead_pending *p = nullptr;
        detail::call(stead_read_into, get(), offset, buffer, size, &p);
        return pending(p);
    }
    /// Reads and waits.
    view read_now(std::uint64_t offset, std::size_t size) const {
        stead_view v{};
        detail::call(stead_read_view, get(), offset, size, &v);
        return view(v);
    }
    /// Reads into memory and waits.
    void read_now(std::uint64_t offset, void *buffer, std::size_t size) const {
        detail::call(stead_read_now, get(), offset, buffer, size);
    }

    /// What was chosen, and why: lines such as "readers: 1 (a quarter of 2 cores)".
    std::string explain() const {
        char *s = nullptr;
        detail::call(stead_session_explain, get(), &s);
        return detail::taken(s);
    }
    /// The same as a JSON object: for each name an object with "value" and "reason".
    std::string explain_json() const {
        char *s = nullptr;
        detail::call(stead_session_explain_json, get(), &s);
        return detail::taken(s);
    }
    /// Ends it, and throws if somebody wrote to the file. Views stay valid, and reads under way are answered.
    void close() {
        const std::shared_ptr<stead_session> owner = std::move(handle_);
        detail::call(stead_session_close, owner.get());
    }

    stead_session *get() const noexcept { return handle_.get(); }

private:
    friend class FileReader;

    static void end(stead_session *s) noexcept { stead_session_close(s, nullptr); }

    std::shared_ptr<stead_session> handle_;
};

/// A file that is open for read sessions.
class File {
public:
    /// Opens a file, which is never created or written to.
    explicit File(const std::string &path, const read_options &options = {}) {
        const stead_read_options o = options.get();
        stead_file *f = nullptr;
        detail::call(stead_file_open, path.c_str(), &o, &f);
        handle_.reset(f);
    }
    /// Takes over a file of the C interface.
    explicit File(stead_file *f) : handle_(f) {}

    /// How many bytes it has.
    std::uint64_t size() const { return stead_file_size(get()); }
    /// Its name. Lives as long as the file.
    std::string_view path() const { return detail::there(stead_file_path(get())); }
    /// A session over the whole file, or from `offset`, or over `size` bytes from there.
    ReadSession session(std::uint64_t offset = 0, std::uint64_t size = STEAD_TO_END) const {
        stead_session *s = nullptr;
        detail::call(stead_session_start, get(), offset, size, &s);
        return ReadSession(s);
    }
    /// What was done for all its sessions so far.
    stead_read_counts counts() const {
        stead_read_counts c{};
        detail::call(stead_file_counts, get(), &c, sizeof c);
        return c;
    }

    stead_file *get() const noexcept { return handle_.get(); }

private:
    struct closing {
        void operator()(stead_file *f) const noexcept { stead_file_close(f, nullptr); }
    };

    std::unique_ptr<stead_file, closing> handle_;
};

/// A read that is done, out of a queue.
struct completion {
    /// What came with the read.
    void *user = nullptr;
    /// The offset that it asked for.
    std::uint64_t offset = 0;
    /// The bytes.
    view bytes;
    /// What went wrong, if something did.
    std::optional<error> failure;

    /// The bytes; throws what went wrong.
    view take() {
        if (failure) throw *failure;
        return std::move(bytes);
    }
};

/// Reads that are done, for an event loop or a scheduler.
class read_queue {
public:
    read_queue() {
        stead_queue *q = nullptr;
        detail::call(stead_queue_new, &q);
        handle_.reset(q);
    }

    /// A file descriptor that is readable while reads are done: for poll and its like. It is the queue's.
    int fd() const { return stead_queue_fd(get()); }
    /// Asks for bytes; the answer comes to this queue.
    void read(const ReadSession &session, std::uint64_t offset, std::size_t size, void *user = nullptr) {
        detail::call(stead_queue_read, get(), session.get(), offset, size, user);
    }
    /// Has the answer of a read come to this queue; the read is given up if `p` goes before.
    void take(const pending &p, void *user = nullptr) { detail::call(stead_pending_queue, p.get(), get(), user); }
    /// The oldest read that is done; waits for one, if any is under way and this is no thread that brings bytes.
    std::optional<completion> next() { return next_ms(-1); }
    /// As next, no longer than that.
    template <class R, class P> std::optional<completion> next(std::chrono::duration<R, P> time) {
        const auto ms = std::chrono::ceil<std::chrono::milliseconds>(time).count();
        return next_ms(ms < 0 ? 0 : static_cast<std::int64_t>(ms));
    }
    /// Number of reads that will come out of it.
    std::uint64_t size() const { return stead_queue_length(get()); }

    stead_queue *get() const noexcept { return handle_.get(); }

private:
    std::optional<completion> next_ms(std::int64_t ms) {
        stead_completion done{};
        if (!stead_queue_next(get(), ms, &done)) return std::nullopt;
        completion c;
        c.user = done.user;
        c.offset = done.offset;
        c.bytes = view(done.view);
        if (done.error) c.failure.emplace(stead_error_kind(done.error), done.error);
        return c;
    }

    detail::handle<stead_queue, &stead_queue_free> handle_;
};

} // namespace stead

#endif
