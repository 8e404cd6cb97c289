/* A function of flows in a library: cc -shared -fPIC -o warmer.so warmer.c. What it is given becomes warmer by one degree. */

#include <stead.h>

int warmer(const stead_flow_array *given, size_t count, const stead_flow_array *wanted, void *to, void *user) {
    const double *from = given[0].data;
    double *out = to;
    (void)user;
    /* Anything but 0 ends the flow. */
    if (count != 1 || given[0].dtype != STEAD_F64 || given[0].bytes != wanted->bytes) return 1;
    for (size_t i = 0; i < wanted->bytes / sizeof *out; i++) out[i] = from[i] + 1;
    return 0;
}
