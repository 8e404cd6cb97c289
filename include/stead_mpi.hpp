// stead over MPI in C++: files that all ranks of a communicator read together, and kernels that they run together.
//
//     stead::File file = stead::open(MPI_COMM_WORLD, "particles.bin");   // all ranks
//     stead::ReadSession session = file.session();                       // all ranks
//     stead::view part = session.read(offset, size).get();               // who wants to
//
//     stead::report r = stead::run(MPI_COMM_WORLD, flights, stead::request().kernel("mean:arr_delay"));   // all ranks
//
// For programs that are linked with libstead and libstead_mpi. What stead_mpi.h says counts here, too.
//
// SPDX-License-Identifier: Apache-2.0 OR MIT
#ifndef STEAD_MPI_HPP
#define STEAD_MPI_HPP

#include <optional>
#include "stead_mpi.h"
#include "stead.hpp"

namespace stead {

/// Opens a file on all ranks of a communicator, by the same name on all. Collective; so is File::session of it.
inline File open(MPI_Comm communicator, const std::string &path, const read_options &options = {}) {
    const stead_read_options o = options.get();
    stead_file *f = nullptr;
    detail::call(stead_mpi_file_open, communicator, path.c_str(), &o, &f);
    return File(f);
}

/// Runs a request over files with all ranks of a communicator, which share out the bytes and get the same report. Collective:
/// all call it, with the same request over the same files.
inline report run(MPI_Comm communicator, const dataset &data, const request &r) {
    stead_report *out = nullptr;
    r.raising([&] { detail::call(stead_mpi_run, communicator, data.get(), r.get(), &out); });
    return report(out);
}

/// The same over a file, a glob or a directory. What this rank alone cannot open is an error of all ranks.
inline report run(MPI_Comm communicator, const std::string &path, const request &r) {
    std::optional<dataset> data;
    try {
        data.emplace(dataset::open(path));
    } catch (const error &) {
        stead_report *none = nullptr;
        stead_mpi_run(communicator, nullptr, r.get(), &none, nullptr);
        throw;
    }
    return run(communicator, *data, r);
}

} // namespace stead

#endif
