// Files over nodes in C++: put there, brought back, described. Included by stead.hpp.
//
//     stead::put("flights.csv", "nvme", stead::copy_options().parts(4).align());
//     stead::get("flights.csv.stead-layout.toml", stead::copy_options().target("back.csv"));
//
// Over the ranks of a communicator: stead_mpi.hpp. Failures are exceptions of type stead::error.
//
// SPDX-License-Identifier: Apache-2.0 OR MIT

#if !defined(STEAD_HPP)
// It is a part of that one, which includes it when its own part is there.
#include "stead.hpp"
#elif !defined(STEAD_LAYOUT_HPP)
#define STEAD_LAYOUT_HPP

namespace stead {

/// How to put a file over nodes, or bring it back; what is not set is chosen. See stead_copy_options.
class copy_options {
public:
    /// Bytes of a stripe.
    copy_options &stripe(std::uint64_t bytes) { return o_.stripe = bytes, *this; }
    /// Parts to cut the file into, in place of one for each dataspace.
    copy_options &parts(std::size_t n) { return o_.parts = n, *this; }
    /// Threads of each rank that copy.
    copy_options &threads(std::size_t n) { return o_.threads = n, *this; }
    /// What the file is called in the dataspaces, and its layout.
    copy_options &name(std::string name) { return name_ = std::move(name), *this; }
    /// Where the layout is written, or the file.
    copy_options &target(std::string path) { return target_ = std::move(path), *this; }
    /// The folder of a dataspace of this node, before the one that is configured.
    copy_options &dataspace(const std::string &name, const std::string &folder) {
        return dataspaces_.push_back(name + "=" + folder), *this;
    }
    /// Ends stripes where records end.
    copy_options &align() { return o_.flags |= STEAD_COPY_ALIGN, *this; }
    /// As above; how records are found, which must live as long as this.
    copy_options &align(const options &how) { return o_.open = how.get(), align(); }
    /// As above, with options that are kept.
    copy_options &align(options &&how) {
        open_ = std::make_shared<const options>(std::move(how));
        return align(*open_);
    }
    /// Replaces a layout that is there, and removes its parts; or a file that is there.
    copy_options &force() { return o_.flags |= STEAD_COPY_FORCE, *this; }
    /// What stops it, which must live as long as this.
    copy_options &cancel(const cancel_flag &flag) { return o_.cancel = flag.get(), *this; }
    copy_options &cancel(const cancel_flag &&) = delete;

    /// Calls a function with the options as C has them.
    template <class F> void with(F f) const {
        const auto folders = detail::pointers(dataspaces_);
        stead_copy_options o = o_;
        o.size = sizeof o;
        o.name = name_.empty() ? nullptr : name_.c_str();
        o.target = target_.empty() ? nullptr : target_.c_str();
        o.dataspaces = folders.data();
        o.dataspaces_count = folders.size();
        f(&o);
    }

private:
    stead_copy_options o_ = {};
    std::shared_ptr<const options> open_;
    std::string name_, target_;
    std::vector<std::string> dataspaces_;
};

/// Puts a file into dataspaces of this host; what was copied, as JSON. See stead_put.
inline std::string put(const std::string &file, const std::string &over, const copy_options &o = {}) {
    char *json = nullptr;
    o.with([&](const stead_copy_options *c) { detail::call(stead_put, file.c_str(), over.c_str(), c, &json); });
    return detail::taken(json);
}

/// Brings a file back whose parts are all on this host; what was copied, as JSON. See stead_get.
inline std::string get(const std::string &layout, const copy_options &o = {}) {
    char *json = nullptr;
    o.with([&](const stead_copy_options *c) { detail::call(stead_get, layout.c_str(), c, &json); });
    return detail::taken(json);
}

/// What a layout is, as JSON. See stead_layout_describe.
inline std::string describe_layout(const std::string &layout) {
    char *json = nullptr;
    detail::call(stead_layout_describe, layout.c_str(), &json);
    return detail::taken(json);
}

} // namespace stead

#endif
