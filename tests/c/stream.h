/* What programs with streams begin with: options that name the folder of memory. */
#ifndef STREAM_H
#define STREAM_H

#include "check.h"
#include <stdint.h>

static stead_error *e = NULL;
static char given[4096];
static const char *spaces[1] = {given};

static inline stead_stream_writer_options writes(void) {
    stead_stream_writer_options o = {0};
    o.size = sizeof o;
    o.timeout_ms = 60000;
    o.dataspaces = spaces;
    o.dataspaces_count = 1;
    return o;
}

static inline stead_stream_reader_options reads(void) {
    stead_stream_reader_options o = {0};
    o.size = sizeof o;
    o.timeout_ms = 60000;
    o.dataspaces = spaces;
    o.dataspaces_count = 1;
    return o;
}

static inline stead_stream_survey surveys(void) {
    stead_stream_survey s = {0};
    s.size = sizeof s;
    s.dataspaces = spaces;
    s.dataspaces_count = 1;
    return s;
}

static inline stead_stream_writer *writer(const char *name, const stead_stream_writer_options *o) {
    stead_stream_writer *w = NULL;
    OK(stead_stream_writer_open(name, o, &w, &e));
    return w;
}

static inline stead_stream_reader *reader(const char *name, const stead_stream_reader_options *o) {
    stead_stream_reader *r = NULL;
    OK(stead_stream_reader_open(name, o, &r, &e));
    return r;
}

static inline stead_stream_step *next(stead_stream_reader *r, uint64_t number) {
    stead_stream_step *step = NULL;
    OK(stead_stream_reader_next(r, &step, &e));
    CHECK(step != NULL && stead_stream_step_number(step) == number);
    return step;
}

#endif
