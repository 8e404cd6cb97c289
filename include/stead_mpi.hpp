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

#include <string>
#include <vector>
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

/// Opens files, globs, directories or layouts on all ranks of a communicator, to run over them together. Collective. What one
/// rank cannot open is an error of all ranks.
inline dataset open_dataset(MPI_Comm communicator, const std::vector<std::string> &paths, const options &o = {}) {
    const auto p = detail::pointers(paths);
    stead_dataset *d = nullptr;
    detail::call(stead_mpi_open, communicator, p.data(), p.size(), o.get(), &d);
    return dataset(d);
}

/// The same as `run` over what open_dataset opens.
inline report run(MPI_Comm communicator, const std::string &path, const request &r) {
    return run(communicator, open_dataset(communicator, {path}), r);
}

/// Puts a file into dataspaces of the nodes of a communicator; what was copied, as JSON. Collective.
inline std::string put(MPI_Comm communicator, const std::string &file, const std::string &over, const copy_options &o = {}) {
    char *json = nullptr;
    o.with([&](const stead_copy_options *c) {
        detail::call(stead_mpi_put, communicator, file.c_str(), over.c_str(), c, &json);
    });
    return detail::taken(json);
}

/// Brings a file back whose parts lie on the nodes of a communicator; what was copied, as JSON. Collective.
inline std::string get(MPI_Comm communicator, const std::string &layout, const copy_options &o = {}) {
    char *json = nullptr;
    o.with([&](const stead_copy_options *c) { detail::call(stead_mpi_get, communicator, layout.c_str(), c, &json); });
    return detail::taken(json);
}

} // namespace stead

#endif
