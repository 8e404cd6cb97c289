// Reads of MPI-IO that compute, in C++: stead_mpi_io.h says what they do.
//
//     stead::storage storage(MPI_COMM_WORLD, {{"storage_hosts", "node[1-2]"}});   // all ranks
//     if (storage.compute() != MPI_COMM_NULL) {
//         ...
//         std::vector<double> sum = stead::read_ex<double>(file, count, MPI_DOUBLE, "sum");
//     }
//
// SPDX-License-Identifier: Apache-2.0 OR MIT
#ifndef STEAD_MPI_IO_HPP
#define STEAD_MPI_IO_HPP

#include <map>
#include <stdexcept>
#include <string>
#include <vector>
#include "stead_mpi_io.h"

namespace stead {

/// Names and values that become an MPI_Info.
using hints = std::map<std::string, std::string>;

/// What a function of stead_mpi_io.h has failed with: the whole text, and the code of MPI.
class mpi_error : public std::runtime_error {
public:
    explicit mpi_error(int code) : std::runtime_error(stead_MPI_Error_text()), code_(code) {}
    int code() const { return code_; }
    /// Throws if a code is one of an error.
    static void check(int code) {
        if (code != MPI_SUCCESS) throw mpi_error(code);
    }

private:
    int code_;
};

namespace detail {

/// An MPI_Info as long as it is needed.
class info {
public:
    explicit info(const hints &all) {
        if (!all.empty()) MPI_Info_create(&info_);
        for (const auto &[name, value] : all) MPI_Info_set(info_, name.c_str(), value.c_str());
    }
    ~info() {
        if (info_ != MPI_INFO_NULL) MPI_Info_free(&info_);
    }
    info(const info &) = delete;
    info &operator=(const info &) = delete;
    MPI_Info get() const { return info_; }

private:
    MPI_Info info_ = MPI_INFO_NULL;
};

/// `read` gets the buffer, the hints and the status.
template <class T, class Read>
std::vector<T> read_ex(std::size_t room, hints all, Read read) {
    all["result_bytes"] = std::to_string(room * sizeof(T));
    std::vector<T> result(room);
    MPI_Status status;
    MPI_Count bytes = 0;
    mpi_error::check(read(result.data(), info(all).get(), &status));
    MPI_Get_elements_x(&status, MPI_BYTE, &bytes);
    result.resize(static_cast<std::size_t>(bytes) / sizeof(T));
    return result;
}

} // namespace detail

/// Storage ranks of a job, as stead_MPI_Storage_init makes them: on these the constructor returns when all others are done.
/// The communicator of the compute ranks is freed with it, which is before MPI_Finalize. With MPI's usual error handler for communicators
/// what goes wrong ends the job.
class storage {
public:
    explicit storage(MPI_Comm world, const hints &all = {}) {
        mpi_error::check(stead_MPI_Storage_init(world, detail::info(all).get(), &compute_));
    }
    ~storage() {
        stead_MPI_Storage_finalize();
        if (compute_ != MPI_COMM_NULL) MPI_Comm_free(&compute_);
    }
    storage(const storage &) = delete;
    storage &operator=(const storage &) = delete;
    /// The compute ranks; MPI_COMM_NULL on storage ranks.
    MPI_Comm compute() const { return compute_; }

private:
    MPI_Comm compute_ = MPI_COMM_NULL;
};

/// stead_MPI_File_read_ex, with room for as many `T` as a result may have; those that it has are returned.
template <class T>
std::vector<T> read_ex(MPI_File file, MPI_Count count, MPI_Datatype type, const std::string &kernel, std::size_t room = 1,
                       const hints &all = {}) {
    return detail::read_ex<T>(room, all, [&](T *to, MPI_Info info, MPI_Status *status) {
        return stead_MPI_File_read_ex(file, to, count, type, kernel.c_str(), info, status);
    });
}

/// stead_MPI_File_read_ex_at, likewise.
template <class T>
std::vector<T> read_ex_at(MPI_File file, MPI_Offset offset, MPI_Count count, MPI_Datatype type, const std::string &kernel,
                          std::size_t room = 1, const hints &all = {}) {
    return detail::read_ex<T>(room, all, [&](T *to, MPI_Info info, MPI_Status *status) {
        return stead_MPI_File_read_ex_at(file, offset, to, count, type, kernel.c_str(), info, status);
    });
}

} // namespace stead

#endif
