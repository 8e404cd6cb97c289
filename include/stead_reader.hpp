// FileReader: std::ifstream over a read session. Included by stead.hpp.
//
//     stead::FileReader in("particles.bin");          // or over a session that many tasks share
//     in.seekg(32);
//     in.read(reinterpret_cast<char *>(&p), sizeof p);
//
// It is a std::istream, so that everything that reads from one works with it. Many small reads in sequence cost a
// comparison and a copy each: the stream's buffer is the page cache itself, or 64 KiB where there is none to look at.

#if !defined(STEAD_HPP)
// It is a part of that one, which includes it when its own part is there.
#include "stead.hpp"
#elif !defined(STEAD_READER_HPP)
#define STEAD_READER_HPP

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <istream>
#include <limits>
#include <streambuf>

// How many bytes came is a member of the standard library's own that programs may set: without it, each small read is a
// call of that library. 0 where it is not there, and where a program says so before it includes this.
#if !defined(STEAD_READER_FAST)
#if defined(__GLIBCXX__)
#define STEAD_READER_FAST 1
#else
#define STEAD_READER_FAST 0
#endif
#endif

namespace stead {

namespace detail {

/// The buffer of a FileReader. What goes wrong is thrown, and kept in `failure`. Its get area is a view of the bytes around the position; positions are those of the file.
class reader_buffer final : public std::streambuf {
public:
    reader_buffer() = default;
    reader_buffer(reader_buffer &&other) noexcept
        : std::streambuf(other), session_(std::move(other.session_)), view_(std::move(other.view_)),
          first_(other.first_), last_(other.last_), at_(other.at_), window_(other.window_) {
        failure = std::move(other.failure);
        other.forget();
    }
    reader_buffer &operator=(reader_buffer &&other) noexcept {
        std::streambuf::operator=(other);
        session_ = std::move(other.session_);
        view_ = std::move(other.view_);
        first_ = other.first_;
        last_ = other.last_;
        at_ = other.at_;
        window_ = other.window_;
        failure = std::move(other.failure);
        other.forget();
        return *this;
    }

    /// Begins at the first byte of a session.
    void begin(std::shared_ptr<stead_session> session) {
        stead_view none{};
        // A session that was closed has no bytes either, and says so.
        const std::uint64_t first = stead_session_offset(session.get());
        call(stead_read_view, session.get(), first, std::size_t(0), &none);
        stead_view_release(&none);
        session_ = std::move(session);
        first_ = first;
        last_ = first_ + stead_session_length(session_.get());
        at_ = first_;
        window_ = SMALL;
    }
    bool is_open() const noexcept { return session_ != nullptr; }
    /// Ends; throws if the bytes that were looked at may not have been the file's.
    void end() {
        const std::shared_ptr<stead_session> session = std::move(session_);
        const view seen = drop();
        forget();
        seen.check();
    }

    /// Copies `n` bytes if there are some and all are in the get area.
    bool copy(char *to, std::streamsize n) noexcept {
        // As unsigned numbers, so that none and a negative one are too large.
        if (static_cast<std::size_t>(n) - 1 >= static_cast<std::size_t>(egptr() - gptr())) return false;
        if (n >= 8) fetch();
        std::memcpy(to, gptr(), static_cast<std::size_t>(n));
        skip(n);
        return true;
    }
    /// The next byte if it is in the get area, else -1.
    int byte() noexcept {
        if (gptr() == egptr()) return -1;
        const int c = static_cast<unsigned char>(*gptr());
        skip(1);
        return c;
    }

    /// What went wrong last. A stream swallows what its buffer throws.
    std::optional<error> failure;

protected:
    int_type underflow() override {
        if (gptr() < egptr()) return traits_type::to_int_type(*gptr());
        if (!more()) return traits_type::eof();
        return traits_type::to_int_type(*gptr());
    }

    std::streamsize xsgetn(char *to, std::streamsize n) override {
        std::streamsize done = 0;
        while (done < n) {
            const std::streamsize left = std::min<std::streamsize>(egptr() - gptr(), n - done);
            if (left > 0) {
                std::memcpy(to + done, gptr(), static_cast<std::size_t>(left));
                skip(left);
                done += left;
            } else if (n - done >= LARGE) {
                const std::streamsize direct = straight(to + done, n - done);
                if (direct == 0) break;
                done += direct;
            } else if (!more()) {
                break;
            }
        }
        return done;
    }

    std::streamsize showmanyc() override {
        const std::uint64_t here = position();
        if (!session_ || here >= last_) return -1;
        return static_cast<std::streamsize>(std::min<std::uint64_t>(last_ - here, MOST));
    }

    int_type pbackfail(int_type c) override {
        const std::uint64_t here = position();
        if (!session_ || here <= first_) return traits_type::eof();
        if (gptr() == eback()) {
            // The view before this one, whose last byte it is.
            place(here - 1);
            if (!more()) return traits_type::eof();
        } else {
            skip(-1);
        }
        if (traits_type::eq_int_type(c, traits_type::eof())) return traits_type::not_eof(c);
        if (traits_type::eq_int_type(c, traits_type::to_int_type(*gptr()))) return c;
        // The bytes are the file's, and not written to.
        skip(1);
        return traits_type::eof();
    }

    pos_type seekoff(off_type off, std::ios_base::seekdir way, std::ios_base::openmode which) override {
        if (!session_ || !(which & std::ios_base::in)) return pos_type(off_type(-1));
        const std::uint64_t from = way == std::ios_base::beg ? 0 : way == std::ios_base::end ? last_ : position();
        std::uint64_t to = from + static_cast<std::uint64_t>(off);
        if ((off < 0 && to > from) || (off >= 0 && to < from) || to > MOST) return pos_type(off_type(-1));
        if (way != std::ios_base::cur || off != 0) place(to);
        return pos_type(static_cast<off_type>(to));
    }

    pos_type seekpos(pos_type to, std::ios_base::openmode which) override {
        return seekoff(off_type(to), std::ios_base::beg, which);
    }

private:
    /// Bytes of the first view after a seek, and of the largest one: little is read for one look here and there, and
    /// who reads on pays for few calls.
    static constexpr std::size_t SMALL = std::size_t(1) << 16, WIDE = std::size_t(1) << 22;
    /// Reads of so many bytes go straight to where they are wanted.
    static constexpr std::streamsize LARGE = std::streamsize(1) << 20;
    /// Bytes from what is read to what is fetched meanwhile: as long as memory takes, of a core that does little else.
    static constexpr std::uintptr_t AHEAD = 4096;
    static constexpr std::uint64_t MOST = static_cast<std::uint64_t>(std::numeric_limits<std::streamoff>::max());

    /// Does something of which a failure is to be kept.
    template <class F> auto noting(F f) {
        try {
            return f();
        } catch (const error &e) {
            failure = e;
            throw;
        }
    }

    void skip(std::streamsize n) noexcept { setg(eback(), gptr() + n, egptr()); }

    /// Has the processor fetch what small reads in sequence come to soon: by itself it stops at the end of each page, and one
    /// core waits for memory most of the time. Nothing is looked at, so that it may lie past the end.
    void fetch() const noexcept {
#if defined(__GNUC__)
        __builtin_prefetch(reinterpret_cast<const void *>(reinterpret_cast<std::uintptr_t>(gptr()) + AHEAD));
#endif
    }

    /// The place in the file of the next byte. `at_` is that of the end of the get area.
    std::uint64_t position() const noexcept { return at_ - static_cast<std::uint64_t>(egptr() - gptr()); }

    /// Goes to a place, which may lie beyond the end, as in other files.
    void place(std::uint64_t to) {
        const std::uint64_t begin = at_ - static_cast<std::uint64_t>(egptr() - eback());
        if (to >= begin && to <= at_) {
            setg(eback(), eback() + (to - begin), egptr());
            return;
        }
        const view seen = drop();
        at_ = to;
        window_ = SMALL;
        noting([&] { seen.check(); });
    }

    /// Lets go of the view; the position is not kept.
    view drop() noexcept {
        setg(nullptr, nullptr, nullptr);
        return std::move(view_);
    }

    void forget() noexcept {
        setg(nullptr, nullptr, nullptr);
        session_.reset();
        view_.reset();
        first_ = last_ = at_ = 0;
        window_ = SMALL;
    }

    /// Views the bytes from `at_`, where the get area is at its end. False at the end of the session, and before its
    /// beginning.
    bool more() {
        const std::uint64_t here = at_;
        if (view_.size()) {
            const view seen = drop();
            // What was looked at must have been what the file had.
            noting([&] { seen.check(); });
        }
        if (!session_ || here < first_ || here >= last_) return false;
        // Windows end at multiples of their size, so that they hardly ever lie in two blocks.
        const std::uint64_t size = std::min<std::uint64_t>(window_ - here % window_, last_ - here);
        noting([&] { look(here, size); });
        if (view_.place() == STEAD_IN_CACHE) {
            window_ = std::min(window_ * 4, WIDE);
        } else {
            // Many readers must not keep all blocks of the session from being used for other bytes.
            noting([&] { view_.own(); });
        }
        char *bytes = const_cast<char *>(view_.data());
        setg(bytes, bytes, bytes + view_.size());
        at_ = here + view_.size();
        return true;
    }

    /// Views bytes, of which the first must be there: of others, nobody may ever ask for those that cannot be had.
    void look(std::uint64_t here, std::uint64_t size) {
        stead_view v{};
        try {
            call(stead_read_view, session_.get(), here, static_cast<std::size_t>(size), &v);
        } catch (const error &e) {
            const std::uint64_t bad = e.offset().value_or(here);
            if (e.kind() != kind::io || bad <= here || bad - here >= size) throw;
            call(stead_read_view, session_.get(), here, static_cast<std::size_t>(bad - here), &v);
        }
        view_ = view(v);
    }

    /// Reads past the get area, which is at its end.
    std::streamsize straight(char *to, std::streamsize n) {
        if (!session_ || at_ < first_ || at_ >= last_) return 0;
        const view seen = drop();
        noting([&] { seen.check(); });
        const std::uint64_t size = std::min<std::uint64_t>(static_cast<std::uint64_t>(n), last_ - at_);
        noting([&] {
            call(stead_read_now, session_.get(), at_, static_cast<void *>(to), static_cast<std::size_t>(size));
        });
        at_ += size;
        return static_cast<std::streamsize>(size);
    }

    std::shared_ptr<stead_session> session_;
    view view_;
    std::uint64_t first_ = 0, last_ = 0, at_ = 0;
    std::size_t window_ = SMALL;
};

} // namespace detail

/// A std::istream over a file or a session, in place of std::ifstream: read, seekg, tellg, gcount, getline, >> and all
/// else are those of the standard. Positions are offsets in the file, whatever the session's own offset; a session's end
/// is the end of the stream, and there is nothing to read before its first byte, at which the stream begins.
///
/// As with std::ifstream, a failure sets a state and throws only where exceptions() asks for it: failure() says more.
/// One thread at a time uses a reader; many readers share a session.
class FileReader final : public std::istream {
public:
    /// Opened by nothing yet.
    FileReader() : std::istream(nullptr) { attach(); }
    /// Opens a file. Sets failbit if that cannot be.
    explicit FileReader(const std::string &path, std::ios_base::openmode mode = std::ios_base::in)
        : FileReader() {
        open(path, mode);
    }
    /// Reads from a session, which lives as long as its readers.
    explicit FileReader(const ReadSession &session) : FileReader() { open(session); }
    FileReader(FileReader &&other)
        : std::istream(std::move(other)), buffer_(std::move(other.buffer_)) {
        attach_moved();
    }
    FileReader &operator=(FileReader &&other) {
        std::istream::operator=(std::move(other));
        buffer_ = std::move(other.buffer_);
        return *this;
    }
    ~FileReader() override = default;

    /// Opens a file. Sets failbit if that cannot be, as for modes that would write.
    void open(const std::string &path, std::ios_base::openmode mode = std::ios_base::in) {
        open(path, mode, read_options{});
    }
    /// With options of reading.
    void open(const std::string &path, std::ios_base::openmode mode, const read_options &options) {
        const auto reading = [&] {
            if (mode & (std::ios_base::out | std::ios_base::app | std::ios_base::trunc))
                throw error(kind::usage, "FileReader reads and does not write");
            return File(path, options).session();
        };
        begin(reading, mode);
    }
    /// Reads from a session.
    void open(const ReadSession &session) {
        begin([&]() -> const ReadSession & { return session; }, std::ios_base::in);
    }
    /// True if there is a file or a session.
    bool is_open() const noexcept { return buffer_.is_open(); }
    /// Ends it. Sets failbit if there was none, or if the file became shorter while its bytes were looked at.
    void close() {
        try {
            if (!is_open()) throw error(kind::usage, "no file is open");
            buffer_.end();
        } catch (const error &e) {
            failed(e);
        }
    }
    /// What went wrong last: why the file could not be opened, read or closed.
    const std::optional<error> &failure() const noexcept { return buffer_.failure; }

    /// As std::istream has it, for next to nothing where the bytes are in the buffer.
    FileReader &read(char *to, std::streamsize n) {
#if STEAD_READER_FAST
        if (rdstate() == goodbit && !tie() && buffer_.copy(to, n)) {
            _M_gcount = n;
            return *this;
        }
#endif
        std::istream::read(to, n);
        return *this;
    }
    using std::istream::get;
    /// As std::istream has it.
    int_type get() {
#if STEAD_READER_FAST
        if (rdstate() == goodbit && !tie()) {
            const int c = buffer_.byte();
            if (c >= 0) {
                _M_gcount = 1;
                return c;
            }
        }
#endif
        return std::istream::get();
    }
    /// As std::istream has it.
    FileReader &get(char &to) {
#if STEAD_READER_FAST
        if (rdstate() == goodbit && !tie() && buffer_.copy(&to, 1)) {
            _M_gcount = 1;
            return *this;
        }
#endif
        std::istream::get(to);
        return *this;
    }

private:
    void attach() { rdbuf(&buffer_); }
    void attach_moved() { set_rdbuf(&buffer_); }

    template <class F> void begin(F session, std::ios_base::openmode mode) {
        try {
            if (is_open()) throw error(kind::usage, "a file is open already");
            buffer_.failure.reset();
            buffer_.begin(session().handle_);
        } catch (const error &e) {
            failed(e);
            return;
        }
        clear();
        if (mode & std::ios_base::ate) seekg(0, std::ios_base::end);
    }

    void failed(const error &e) {
        buffer_.failure = e;
        setstate(failbit);
    }

    detail::reader_buffer buffer_;
};

} // namespace stead

#endif
