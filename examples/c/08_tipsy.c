/*
 * A snapshot of particles (Tipsy) that tasks load, each its own part, into arrays of the program. Where records begin, in
 * which byte order and precision they are: the library knows. Mass and centre of mass of each species.
 */

#include <stdio.h>
#include <stdlib.h>

#include <stead.h>

#define TASKS 64

struct particle {
    double mass, position[3];
};

static void check(stead_status status, stead_error *error) {
    if (!status) return;
    fprintf(stderr, "%s\n", stead_error_message(error));
    exit(1);
}

int main(int argc, char **argv) {
    static const char *const names[] = {"gas", "dark", "star"};
    const char *path = argc > 1 ? argv[1] : "galaxy.tipsy";
    stead_error *error = NULL;
    stead_tipsy *snapshot = NULL;
    stead_tipsy_header header;
    check(stead_tipsy_open(path, NULL, &snapshot, &error), error);
    check(stead_tipsy_describe(snapshot, &header, sizeof header, &error), error);
    printf("time %g\n", header.time);

    for (int species = STEAD_GAS; species <= STEAD_STAR; species++) {
        double sum[4] = {0};
        /* Any thread may do this. */
        for (size_t task = 0; task < TASKS; task++) {
            stead_tipsy_part part;
            check(stead_tipsy_share(snapshot, species, task, TASKS, &part, &error), error);
            struct particle *p = malloc(((size_t)part.count + 1) * sizeof *p);
            if (!p) return 1;
            /* Doubles take floats, too; members of structs are as good as arrays. */
            const stead_tipsy_column columns[] = {
                {"mass", &p->mass, STEAD_F64, sizeof *p},
                {"x", &p->position[0], STEAD_F64, sizeof *p},
                {"y", &p->position[1], STEAD_F64, sizeof *p},
                {"z", &p->position[2], STEAD_F64, sizeof *p},
            };
            check(stead_tipsy_load(snapshot, species, task, TASKS, columns, 4, &error), error);
            for (uint64_t i = 0; i < part.count; i++) {
                sum[0] += p[i].mass;
                for (int axis = 0; axis < 3; axis++) sum[axis + 1] += p[i].mass * p[i].position[axis];
            }
            free(p);
        }
        printf("%-4s %llu particles, mass %.6f, centre %.6f %.6f %.6f\n", names[species],
               (unsigned long long)header.counts[species], sum[0], sum[1] / sum[0], sum[2] / sum[0], sum[3] / sum[0]);
    }
    check(stead_tipsy_close(snapshot, &error), error);
    return 0;
}
