/* Calls that fail while the program ends: what was kept of failures for its thread has gone by then. */

#include "check.h"
#include <stdlib.h>

static void last(void) {
    stead_error *e = NULL;
    CHECK(stead_stage_wait(NULL, 0, NULL) == STEAD_USAGE);
    CHECK(!stead_stage_test(NULL));
    CHECK(stead_last_message() != NULL && stead_last_message()[0] == 0);
    /* The error itself is there as ever. */
    CHECK(stead_stage_wait(NULL, 0, &e) == STEAD_USAGE);
    SAYS(stead_error_message(e), "NULL");
    stead_error_free(e);
    /* It is no handle any more, which is left alone. */
    stead_error_free(e);
    CHECK(stead_handles_alive() == 0);
    if (failures != 0) _Exit(1);
}

int main(void) {
    CHECK(atexit(last) == 0);
    CHECK(stead_stage_wait(NULL, 0, NULL) == STEAD_USAGE);
    SAYS(stead_last_message(), "NULL");
    exit(ended("exit"));
}
