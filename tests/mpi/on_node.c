/* on_node SOCKET NODE SOURCE TARGET: has the daemon of a node copy, by way of that of this one, and waits. */
#include <stdio.h>
#include <stead.h>

int main(int argc, char **argv) {
    stead_error *error = NULL;
    stead_daemon *daemon = NULL;
    stead_stage_request *request = NULL;
    char *nodes = NULL;
    int64_t id = 0;
    int failed;

    if (argc != 5) return 2;
    failed = stead_daemon_connect_on(argv[1], argv[2], &daemon, &error) || stead_daemon_nodes(daemon, &nodes, &error) ||
             stead_stage_request_new("copy", &request, &error) || stead_stage_request_source(request, argv[3], &error) ||
             stead_stage_request_target(request, argv[4], &error) ||
             stead_daemon_submit(daemon, request, NULL, 0, &id, &error) || stead_daemon_wait(daemon, id, -1, &error);
    if (failed) fprintf(stderr, "%s\n", stead_error_message(error));
    else printf("%s\n", nodes);
    stead_text_free(nodes);
    stead_error_free(error);
    stead_stage_request_free(request);
    stead_daemon_free(daemon);
    return failed != 0;
}
