// What the tests in C++ share: checks that go on after a failure and are counted, also by several threads.
#ifndef CHECK_HPP
#define CHECK_HPP

#include <atomic>
#include <cstdio>
#include <cstring>
#include <stead.hpp>

static std::atomic<int> failures{0}, checks{0};

#define CHECK(condition) \
    do { \
        checks++; \
        if (!(condition)) { \
            failures++; \
            std::fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
        } \
    } while (0)

/// What is thrown.
template <class F> static stead::error thrown(F f) {
    try {
        f();
    } catch (const stead::error &e) {
        return e;
    }
    return stead::error(stead::kind::internal, "nothing was thrown");
}

/// True if it throws an error of this kind that says so.
template <class F> static bool fails(stead::kind kind, const char *part, F f) {
    const stead::error e = thrown(f);
    const bool ok = e.kind() == kind && std::strstr(e.what(), part);
    if (!ok) std::fprintf(stderr, "it said: %s\n", e.what());
    return ok;
}

#endif
