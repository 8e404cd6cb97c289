// Tipsy snapshots in C++: each task loads its own particles, as arrays. Included by stead.hpp.
//
//     stead::Tipsy snapshot("galaxy.tipsy");
//     auto [mass, x, y, z] = snapshot.load<double>(stead::species::dark, task, tasks, "mass", "x", "y", "z");
//
// Byte order, length of the header and precision are found by the length of the file. To fill arrays or structs of one's
// own: load_into. For reads that do not wait: session, part and decode.
//
// Failures are exceptions of type stead::error. Threads: everything may be used from any thread.

#if !defined(STEAD_HPP)
// It is a part of that one, which includes it when its own part is there.
#include "stead.hpp"
#elif !defined(STEAD_TIPSY_HPP)
#define STEAD_TIPSY_HPP

namespace stead {

/// A kind of particles. A file has all of one kind in one piece, in this order.
enum class species : stead_species { gas = STEAD_GAS, dark = STEAD_DARK, star = STEAD_STAR };

/// All kinds, in the order of the file.
inline constexpr species all_species[] = {species::gas, species::dark, species::star};

/// Its name: gas, dark or star.
inline std::string_view species_name(species k) {
    constexpr std::string_view names[] = {"gas", "dark", "star"};
    return names[static_cast<std::size_t>(k)];
}

/// A task's records of one species: number of the first one, how many, and where they lie in the file.
using tipsy_part = stead_tipsy_part;
/// One number of a record: its name, type, and bytes before it.
using tipsy_field = stead_tipsy_field;
/// Where a column of particles is to be put.
using tipsy_column = stead_tipsy_column;

/// A Tipsy snapshot. Ends when it is closed or goes.
class Tipsy {
public:
    /// Opens a file, which is never written to.
    explicit Tipsy(const std::string &path, const read_options &options = {}) {
        const stead_read_options o = options.get();
        stead_tipsy *t = nullptr;
        detail::call(stead_tipsy_open, path.c_str(), &o, &t);
        handle_.reset(t);
        look();
    }
    /// Takes over a snapshot of the C interface, such as stead_mpi_tipsy_open gives.
    explicit Tipsy(stead_tipsy *t) : handle_(t) { look(); }

    /// What the file is: byte order, precision, bytes of records.
    const stead_tipsy_header &header() const noexcept { return header_; }
    /// Its time; in cosmological runs the scale factor.
    double time() const noexcept { return header_.time; }
    /// Number of particles of a species.
    std::uint64_t count(species k) const noexcept { return header_.counts[static_cast<std::size_t>(k)]; }
    /// Bytes of one record of a species.
    std::size_t record_size(species k) const noexcept {
        return static_cast<std::size_t>(header_.record_bytes[static_cast<std::size_t>(k)]);
    }
    /// What is in a record of a species, in the order of the file.
    std::vector<tipsy_field> fields(species k) const {
        const auto n = static_cast<stead_species>(k);
        std::vector<tipsy_field> all(stead_tipsy_fields(get(), n, nullptr, 0));
        stead_tipsy_fields(get(), n, all.data(), all.size());
        return all;
    }
    /// Which records are those of task `task` of `tasks`. Together the tasks have each once, in order; there may be more
    /// tasks than records.
    tipsy_part part(species k, std::size_t task = 0, std::size_t tasks = 1) const {
        tipsy_part p{};
        detail::call(stead_tipsy_share, get(), static_cast<stead_species>(k), task, tasks, &p);
        return p;
    }

    /// A place for a column: an array of floats or doubles, or a member of structs, as in
    /// `to("mass", &particles[0].mass, sizeof particles[0])`. The name must live until the column was filled.
    template <class T> static tipsy_column to(const char *name, T *data, std::size_t stride = sizeof(T)) {
        static_assert(std::is_same_v<T, float> || std::is_same_v<T, double>, "columns are of floats or doubles");
        return {name, data, std::is_same_v<T, float> ? STEAD_F32 : STEAD_F64, stride};
    }
    /// Loads columns of a task's particles into the caller's memory, which has room for as many values as part() says.
    void load_into(species k, std::size_t task, std::size_t tasks, span<const tipsy_column> columns) const {
        const auto n = static_cast<stead_species>(k);
        detail::call(stead_tipsy_load, get(), n, task, tasks, columns.data(), columns.size());
    }
    void load_into(species k, std::size_t task, std::size_t tasks, std::initializer_list<tipsy_column> columns) const {
        load_into(k, task, tasks, {columns.begin(), columns.size()});
    }
    /// Loads columns by their names: an array of vectors, in the order of the names. Doubles take every file; floats throw
    /// where the file has doubles.
    template <class T = double, class... Names>
    std::array<std::vector<T>, sizeof...(Names)> load(species k, std::size_t task, std::size_t tasks,
                                                       const Names &...names) const {
        static_assert(sizeof...(Names) > 0, "name the columns");
        const auto n = static_cast<std::size_t>(part(k, task, tasks).count);
        std::array<std::vector<T>, sizeof...(Names)> all;
        std::size_t i = 0;
        const auto place = [&](const char *name) {
            all[i].resize(n);
            return to(name, all[i++].data());
        };
        load_into(k, task, tasks, {place(names)...});
        return all;
    }

    /// The session over the whole file, for reads that do not wait: part() says where a task's records lie.
    ReadSession session() const {
        stead_session *s = nullptr;
        detail::call(stead_tipsy_session, get(), &s);
        return ReadSession(s);
    }
    /// Puts the values of whole records, as they lie in the file, into the caller's memory.
    void decode(species k, span<const char> records, span<const tipsy_column> columns) const {
        const auto n = static_cast<stead_species>(k);
        const void *bytes = records.data();
        detail::call(stead_tipsy_decode, get(), n, bytes, records.size(), columns.data(), columns.size());
    }
    void decode(species k, span<const char> records, std::initializer_list<tipsy_column> columns) const {
        decode(k, records, {columns.begin(), columns.size()});
    }

    /// Ends it, and throws if somebody wrote to the file.
    void close() { detail::call(stead_tipsy_close, handle_.release()); }

    stead_tipsy *get() const noexcept { return handle_.get(); }

private:
    struct closing {
        void operator()(stead_tipsy *t) const noexcept { stead_tipsy_close(t, nullptr); }
    };

    void look() { detail::call(stead_tipsy_describe, get(), &header_, sizeof header_); }

    std::unique_ptr<stead_tipsy, closing> handle_;
    stead_tipsy_header header_{};
};

} // namespace stead

#endif
