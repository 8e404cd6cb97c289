/*
 * Tree pieces: many more tasks than threads, each with its own particles of a snapshot (Tipsy), as codes in the manner of
 * Charm++ have them. A piece asks for its share and returns; its thread goes on with pieces whose particles are there, and
 * waits only when no piece has anything to do.
 */

#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include <stead.h>

#define PIECES 1024
#define THREADS 2

struct particle {
    double mass, position[3];
};

/* The particles of a piece that are still to be halved, until a bucket has eight. */
struct work {
    struct piece *piece;
    size_t from, to;
    int axis;
    struct work *next;
};

struct share {
    struct piece *piece;
    int species;
};

struct piece {
    struct share shares[3];
    int came;
    size_t count;
    struct particle *particles;
};

/* A thread of the program: what it has to do, and reads that are done. */
struct scheduler {
    pthread_t thread;
    size_t number;
    stead_tipsy *snapshot;
    stead_session *session;
    stead_queue *reads;
    struct work *first, **last;
    double sum[3][5]; /* of each species: how many, their mass, and mass times position */
};

static void check(stead_status status, stead_error *error) {
    if (!status) return;
    fprintf(stderr, "%s\n", stead_error_message(error));
    exit(1);
}

static void *memory(void *p, size_t bytes) {
    p = realloc(p, bytes + 1);
    if (!p) exit(1);
    return p;
}

static void post(struct scheduler *s, struct piece *piece, size_t from, size_t to, int axis) {
    struct work *w = memory(NULL, sizeof *w);
    *w = (struct work){piece, from, to, axis, NULL};
    *s->last = w;
    s->last = &w->next;
}

/* Asks for the particles of all species. */
static void load(struct scheduler *s, struct piece *piece, size_t index) {
    stead_error *e = NULL;
    for (int k = 0; k < 3; k++) {
        stead_tipsy_part part;
        piece->shares[k] = (struct share){piece, k};
        check(stead_tipsy_share(s->snapshot, k, index, PIECES, &part, &e), e);
        check(stead_queue_read(s->reads, s->session, part.offset, (size_t)part.bytes, &piece->shares[k], &e), e);
    }
}

/* The particles of one species have come. */
static void take(struct scheduler *s, const stead_tipsy_header *header, stead_completion *done) {
    stead_error *e = NULL;
    const struct share *share = done->user;
    struct piece *piece = share->piece;
    const int k = share->species;
    check(done->error ? stead_error_kind(done->error) : STEAD_OK, done->error);
    const size_t n = done->view.size / (size_t)header->record_bytes[k];
    piece->particles = memory(piece->particles, (piece->count + n) * sizeof(struct particle));
    struct particle *p = piece->particles + piece->count;
    const stead_tipsy_column columns[] = {
        {"mass", &p->mass, STEAD_F64, sizeof *p},
        {"x", &p->position[0], STEAD_F64, sizeof *p},
        {"y", &p->position[1], STEAD_F64, sizeof *p},
        {"z", &p->position[2], STEAD_F64, sizeof *p},
    };
    check(stead_tipsy_decode(s->snapshot, k, done->view.data, done->view.size, columns, 4, &e), e);
    check(stead_view_check(&done->view, &e), e);
    stead_view_release(&done->view);
    for (size_t i = 0; i < n; i++) {
        s->sum[k][0] += 1;
        s->sum[k][1] += p[i].mass;
        for (int axis = 0; axis < 3; axis++) s->sum[k][axis + 2] += p[i].mass * p[i].position[axis];
    }
    piece->count += n;
    if (++piece->came == 3) post(s, piece, 0, piece->count, 0);
}

static int by_x(const void *a, const void *b) {
    const double x = ((const struct particle *)a)->position[0], y = ((const struct particle *)b)->position[0];
    return (x > y) - (x < y);
}
static int by_y(const void *a, const void *b) {
    const double x = ((const struct particle *)a)->position[1], y = ((const struct particle *)b)->position[1];
    return (x > y) - (x < y);
}
static int by_z(const void *a, const void *b) {
    const double x = ((const struct particle *)a)->position[2], y = ((const struct particle *)b)->position[2];
    return (x > y) - (x < y);
}

/* One step of the tree: halves some particles along an axis. */
static void build(struct scheduler *s, const struct work *w) {
    static int (*const by[])(const void *, const void *) = {by_x, by_y, by_z};
    const size_t middle = w->from + (w->to - w->from) / 2;
    if (w->to - w->from <= 8) return;
    qsort(w->piece->particles + w->from, w->to - w->from, sizeof(struct particle), by[w->axis]);
    post(s, w->piece, w->from, middle, (w->axis + 1) % 3);
    post(s, w->piece, middle, w->to, (w->axis + 1) % 3);
}

static void *run(void *of) {
    struct scheduler *s = of;
    stead_error *e = NULL;
    stead_tipsy_header header;
    stead_completion done;
    struct piece *pieces = calloc(PIECES, sizeof *pieces);
    if (!pieces) exit(1);
    check(stead_tipsy_describe(s->snapshot, &header, sizeof header, &e), e);
    check(stead_queue_new(&s->reads, &e), e);
    for (size_t i = s->number; i < PIECES; i += THREADS) load(s, &pieces[i], i);
    while (s->first || stead_queue_length(s->reads) > 0) {
        if (!s->first) {
            /* Nothing to do but to wait for bytes: beside other descriptors, if there are any. */
            struct pollfd bytes = {stead_queue_fd(s->reads), POLLIN, 0};
            poll(&bytes, 1, -1);
        }
        while (stead_queue_next(s->reads, 0, &done)) take(s, &header, &done);
        struct work *w = s->first;
        if (!w) continue;
        if (!(s->first = w->next)) s->last = &s->first;
        build(s, w);
        free(w);
    }
    stead_queue_free(s->reads);
    for (size_t i = 0; i < PIECES; i++) free(pieces[i].particles);
    free(pieces);
    return NULL;
}

int main(int argc, char **argv) {
    static const char *const names[] = {"gas", "dark", "star"};
    struct scheduler all[THREADS] = {0};
    stead_error *error = NULL;
    stead_tipsy *snapshot = NULL;
    stead_session *session = NULL;
    check(stead_tipsy_open(argc > 1 ? argv[1] : "galaxy.tipsy", NULL, &snapshot, &error), error);
    check(stead_tipsy_session(snapshot, &session, &error), error);
    for (size_t t = 0; t < THREADS; t++) {
        all[t].number = t;
        all[t].snapshot = snapshot;
        all[t].session = session;
        all[t].last = &all[t].first;
        if (pthread_create(&all[t].thread, NULL, run, &all[t])) return 1;
    }
    for (size_t t = 0; t < THREADS; t++) {
        pthread_join(all[t].thread, NULL);
        for (int k = 0; t > 0 && k < 3; k++)
            for (int i = 0; i < 5; i++) all[0].sum[k][i] += all[t].sum[k][i];
    }
    printf("%d pieces on %d threads\n", PIECES, THREADS);
    for (int k = 0; k < 3; k++) {
        const double *s = all[0].sum[k];
        printf("%-4s %.0f particles, mass %.6f, centre %.6f %.6f %.6f\n", names[k], s[0], s[1], s[2] / s[1], s[3] / s[1],
               s[4] / s[1]);
    }
    check(stead_session_close(session, &error), error);
    check(stead_tipsy_close(snapshot, &error), error);
    return 0;
}
