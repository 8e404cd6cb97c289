/* Measuring the machine. */

#include "check.h"
#include <stdlib.h>

int main(void) {
    stead_error *e = NULL;
    stead_cancel *stop = NULL;
    stead_dataset *data = NULL;
    stead_options *o = NULL;
    stead_request *q = NULL;
    char *text = NULL;
    int asked = 0;
    const char *tiers[] = {"."}, *none[] = {"no-such-folder"};
    OK(stead_calibrate(tiers, 1, 0.2, "profile.toml", NULL, &text, &e));
    SAYS(text, "[[sites]]");
    SAYS(text, "[[tiers]]");
    SAYS(text, "kernel = \"sum\"");
    stead_text_free(text);
    text = NULL;
    OK(stead_calibrate(NULL, 0, 0.2, "profile.toml", NULL, NULL, &e));
    FAILS(STEAD_NOT_FOUND, "no such folder", stead_calibrate(none, 1, 0.2, "profile.toml", NULL, &text, &e));
    CHECK(text == NULL);
    FAILS(STEAD_USAGE, "seconds", stead_calibrate(tiers, 1, -1, "profile.toml", NULL, NULL, &e));
    FAILS(STEAD_USAGE, "tiers is NULL", stead_calibrate(NULL, 1, 0.2, "profile.toml", NULL, NULL, &e));
    FAILS(STEAD_NOT_FOUND, "no-such-folder", stead_calibrate(tiers, 1, 0.2, "no-such-folder/p", NULL, NULL, &e));
    OK(stead_cancel_new(&stop, &e));
    stead_cancel_request(stop);
    FAILS(STEAD_CANCELLED, "stopped", stead_calibrate(tiers, 1, 0.2, "profile.toml", stop, NULL, &e));
    stead_cancel_free(stop);
    FAILS(STEAD_PEER, "no ranks today",
          stead_calibrate_ranks(no_ranks, &asked, tiers, 1, 0.2, "profile.toml", NULL, &text, &e));
    CHECK(asked == 1 && text == NULL);
    OK(stead_options_new(&o, &e));
    OK(stead_options_set(o, "storage-hosts", "node[1-2]", &e));
    FAILS(STEAD_USAGE, "this one is alone", stead_open("profile.toml", o, &data, &e));
    stead_options_free(o);
    OK(stead_request_new(&q, &e));
    OK(stead_request_set(q, "place", "push", &e));
    FAILS(STEAD_USAGE, "not a place to compute", stead_request_set(q, "place", "moon", &e));
    stead_request_free(q);
    CHECK(stead_handles_alive() == 0);
    return ended("calibrate");
}
