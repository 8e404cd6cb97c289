/*
 * stead: keep the data home; send the work.
 *
 * Generated from crates/capi by `cargo xtask header`; changes belong there.
 *
 * Calls. A function that can fail returns a stead_status, STEAD_OK or the kind of failure, and takes a
 * `stead_error **error` last. If that is not NULL, `*error` is NULL on success and a new error otherwise, to be
 * freed with stead_error_free. stead_last_message has the message in any case. Answers go to the places that the
 * caller names; a handle is NULL there after a failure, other answers are not written then.
 *
 * Handles are opaque, and nothing lies where they seem to point. What was freed, is of another type, or was never a
 * handle is an error of kind STEAD_USAGE and no crash, and so is NULL where it makes no sense. Functions that return
 * their answer return 0, NULL or what they say then.
 *
 * Texts are UTF-8 and end with a zero byte. Those of type `const char *` live as long as the handle they came from;
 * those written through `char **` are the caller's, to be freed with stead_text_free.
 *
 * Threads. Every function may be called from any thread at any time. Datasets, reports and errors are immutable;
 * options and requests are locked while they are read or changed. What must not happen is that one thread frees a
 * handle while another one reads a text of it. After fork() the child may use stead only if no run was under way.
 *
 * Memory that is lent (stead_open_array and its like) must stay as it is until it is released.
 *
 * No function throws, prints, exits or installs signal handlers.
 */

#ifndef STEAD_H
#define STEAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** The version of this header; stead_version() is that of the library. */
#define STEAD_VERSION "0.1.0"
#define STEAD_VERSION_MAJOR 0
#define STEAD_VERSION_MINOR 1
#define STEAD_VERSION_PATCH 0


/**
 * stead_fabric.version.
 */
#define STEAD_FABRIC_VERSION 1

/**
 * Bytes for the text of an error, with the zero at its end.
 */
#define STEAD_FABRIC_WHY 256

/**
 * The sender, where any will do.
 */
#define STEAD_ANY_RANK UINT64_MAX

/**
 * Nothing came in time.
 */
#define STEAD_FABRIC_NOTHING -1

/**
 * A tag with which nothing is sent: who receives with it wants to know whether a rank's program has come to its end.
 */
#define STEAD_FABRIC_ENDS (UINT32_MAX - 16)

/**
 * A tag with which nothing is sent: who receives with it says which other tag is over. A fabric that knows nothing of it has nothing
 * to give, and keeps what comes.
 */
#define STEAD_FABRIC_FORGET (UINT32_MAX - 17)

/**
 * For stead_kernel.needs: the bytes of the records (stead_block_run).
 */
#define STEAD_NEEDS_BYTES 1

/**
 * For stead_kernel.needs: how many records there are. Known anyway where columns or records are asked for.
 */
#define STEAD_NEEDS_ROWS 2

/**
 * For stead_kernel.needs: each record's bytes (stead_block_record).
 */
#define STEAD_NEEDS_RECORDS 4

/**
 * For stead_kernel.needs: blocks, and states to merge, in the order of the data, for merging that is associative and does
 * not commute. Each rank then works with one thread, and ranks whose parts lie between those of others are refused
 * (STEAD_USAGE).
 */
#define STEAD_NEEDS_ORDER 8

/**
 * As a length: up to the end of the file.
 */
#define STEAD_TO_END UINT64_MAX

/**
 * For stead_read_options.flags: nothing is read before somebody asks for it.
 */
#define STEAD_READ_ON_DEMAND 1

/**
 * For stead_read_options.flags: pass by the page cache (O_DIRECT).
 */
#define STEAD_READ_DIRECT 2

/**
 * For stead_read_options.flags: read with io_uring.
 */
#define STEAD_READ_URING 4

/**
 * For stead_read_options.flags: read with pread.
 */
#define STEAD_READ_PREAD 8

/**
 * For stead_read_options.flags: blocks in memory, and the memory for them, are not shared with other processes.
 */
#define STEAD_READ_UNSHARED 16

/**
 * For stead_copy_options.flags: end stripes where records end, so that none lies on two nodes.
 */
#define STEAD_COPY_ALIGN 1

/**
 * For stead_copy_options.flags: replace a layout that is there, and remove its parts; or a file that is there.
 */
#define STEAD_COPY_FORCE 2

/**
 * For stead_stream_writer_options.keep: no step stays when all readers have had it.
 */
#define STEAD_STREAM_KEEP_NONE UINT64_MAX

/**
 * Some records of one file, while stead_kernel.update looks at them: see stead_block_rows and its like.
 */
typedef struct stead_block stead_block;

/**
 * What stead_kernel.finish fills: see stead_builder_double and its like.
 */
typedef struct stead_builder stead_builder;

/**
 * A flag that stops the runs whose requests hold it. All its functions may be called from any thread;
 * stead_cancel_request and stead_cancel_is_requested may be called from a signal handler too.
 */
typedef struct stead_cancel stead_cancel;

/**
 * Programs on several nodes whose streams reach each other: ranks of one job, each of which is of a part, such as the simulation or the
 * analysis. Made by stead_coupling_new, freed with stead_coupling_free.
 */
typedef struct stead_coupling stead_coupling;

/**
 * Connections to the daemon of the node. Made by stead_daemon_connect, freed with stead_daemon_free. Several threads may ask; one
 * that waits keeps nobody waiting. A process that was forked connects anew.
 */
typedef struct stead_daemon stead_daemon;

/**
 * Files, or memory, that are read as one. Made by stead_open and its like, freed with stead_dataset_free.
 * Immutable: several threads may use it, and run over it, at the same time.
 */
typedef struct stead_dataset stead_dataset;

/**
 * What went wrong: kind, message, place, hint. Made by calls that fail, freed with stead_error_free. Immutable,
 * so threads may share it.
 */
typedef struct stead_error stead_error;

/**
 * A file that is open for read sessions. Made by stead_file_open, ended with stead_file_close. Sessions over it may be
 * started and used by several threads at the same time.
 */
typedef struct stead_file stead_file;

/**
 * A flow. Made by stead_flow_open, freed with stead_flow_free. Several threads may use it, and run it.
 */
typedef struct stead_flow stead_flow;

/**
 * Ranks of a job of which some are storage ranks, as one of them sees it: a compute rank asks, a storage rank serves.
 * Made by stead_offload_open, freed with stead_offload_free.
 */
typedef struct stead_offload stead_offload;

/**
 * How to open a dataset; what is not set is detected. Made by stead_options_new, freed with stead_options_free.
 * Several threads may use it. Opening copies it.
 */
typedef struct stead_options stead_options;

/**
 * A read under way: somebody may wait for it, take its answer, have it sent elsewhere, or give it up. Made by
 * stead_read_begin and its like, freed with stead_pending_free.
 */
typedef struct stead_pending stead_pending;

/**
 * Reads that are done, in the order in which they were, for whoever takes them with stead_queue_next. Made by
 * stead_queue_new, freed with stead_queue_free. Any number of threads may add to it and take from it.
 */
typedef struct stead_queue stead_queue;

/**
 * Memory with a name, which transfers know as "memory://NAME". Made by stead_region_create and stead_region_open, freed with
 * stead_region_close. Several threads may use it.
 */
typedef struct stead_region stead_region;

/**
 * Results, what was done, and what it took. Made by stead_run, freed with stead_report_free. Immutable: several
 * threads may read it at the same time.
 */
typedef struct stead_report stead_report;

/**
 * A run that is asked for: which kernels, over which rows, with which means. Made by stead_request_new, freed with
 * stead_request_free. It can be run many times, on many datasets, and changed between runs; a run copies it.
 * Several threads may use it.
 */
typedef struct stead_request stead_request;

/**
 * A range of a file that many tasks read while few readers fetch it. Made by stead_session_start, ended with
 * stead_session_close. Any number of threads may read from it at the same time.
 */
typedef struct stead_session stead_session;

/**
 * Files and trees that are to be copied, moved, made equal or removed. Made by stead_stage_request_new, freed with
 * stead_stage_request_free. It can be asked for many times, and changed between. Several threads may use it.
 */
typedef struct stead_stage_request stead_stage_request;

/**
 * A journal of transfers, and what they are done with. Made by stead_stager_open, ended with stead_stager_close. Several threads
 * may use it.
 */
typedef struct stead_stager stead_stager;

/**
 * A box of a variable: where a writer has put it, or copied together. Made by stead_stream_step_view, freed with stead_stream_array_free.
 */
typedef struct stead_stream_array stead_stream_array;

/**
 * Memory for arrays that is made before there is a writer, and that any writer puts without a copy. Made by stead_stream_empty, freed with
 * stead_stream_buffer_free. Several threads may use it.
 */
typedef struct stead_stream_buffer stead_stream_buffer;

/**
 * A reader of a stream. Made by stead_stream_reader_open, freed with stead_stream_reader_free. Several threads may use it, one after the
 * other: a call waits for the one before.
 */
typedef struct stead_stream_reader stead_stream_reader;

/**
 * Memory for a block that is put without a copy. Made by stead_stream_writer_empty, put with stead_stream_writer_put_room or freed with
 * stead_stream_room_free.
 */
typedef struct stead_stream_room stead_stream_room;

/**
 * A step of a stream, complete. It stays as it is until it is freed. Made by stead_stream_reader_next and its like, freed with
 * stead_stream_step_free. Several threads may use it at the same time.
 */
typedef struct stead_stream_step stead_stream_step;

/**
 * Calls a function with each step of a stream. Made by stead_stream_subscribe, freed with stead_stream_subscription_free.
 */
typedef struct stead_stream_subscription stead_stream_subscription;

/**
 * A writer of a stream. Made by stead_stream_writer_open, ended with stead_stream_writer_close. Several threads may use it, one after
 * the other: a call waits for the one before.
 */
typedef struct stead_stream_writer stead_stream_writer;

/**
 * A Tipsy snapshot that is open. Made by stead_tipsy_open, ended with stead_tipsy_close. Any number of threads may load
 * from it at the same time.
 */
typedef struct stead_tipsy stead_tipsy;

/**
 * A transfer that was begun: somebody may wait for its end, ask how far it is, stop it. Made by stead_stage_submit and
 * stead_stage_resume, freed with stead_stage_free. Several threads may use it.
 */
typedef struct stead_transfer stead_transfer;

/**
 * Outcome of a call: STEAD_OK, or the kind of failure. The numbers do not change from version to version.
 */
typedef int stead_status;

/**
 * Called once when nothing reads lent memory any more, with the pointer that came with it; by the thread that is
 * the last one to let go. NULL if nobody wants to know.
 */
typedef void (*stead_release_fn)(void *user);

/**
 * Type of one element: STEAD_F64 and so on.
 */
typedef int stead_dtype;

/**
 * Which index runs fastest in memory.
 */
typedef int stead_order;

/**
 * One column of a table in memory: as many elements as the table has rows, one after the other, in this
 * machine's byte order.
 */
typedef struct stead_column {
    /**
     * Its name; copied.
     */
    const char *name;
    /**
     * The elements. They may lie at any address.
     */
    const void *data;
    /**
     * Their type.
     */
    stead_dtype dtype;
    /**
     * Called with `user` when `data` is not read any more, or NULL.
     */
    stead_release_fn release;
    /**
     * For `release`.
     */
    void *user;
} stead_column;

/**
 * Makes the state of no data out of zero bytes. Called once a run; other states begin as copies of it.
 */
typedef int (*stead_init_fn)(void *state, void *user);

/**
 * Adds a block to a state.
 */
typedef int (*stead_update_fn)(void *state, const struct stead_block *block, void *user);

/**
 * Adds another state to a state.
 */
typedef int (*stead_merge_fn)(void *state, const void *other, void *user);

/**
 * Says what a state means, or that there is another pass (stead_builder_again).
 */
typedef int (*stead_finish_fn)(void *state, struct stead_builder *result, void *user);

/**
 * A kernel of one's own: a computation that can be split over blocks, threads and ranks.
 *
 * States are `state_size` plain bytes, aligned to 16, that are copied and sent as they are: they hold no pointers,
 * and nothing to free. For the same answer whatever the split, merging must be associative, and commutative unless `needs`
 * has STEAD_NEEDS_ORDER, and the state of no data must add nothing. What a pass hands to the next one stands in the state too, and merging leaves it
 * as it is.
 *
 * Every function returns 0, or anything else to stop the run: stead_fail says why. They are called from several
 * threads at the same time, each on states of its own, so what `user` points to must bear that. They must not
 * throw or jump out.
 *
 * Begin with `stead_kernel k = {0}; k.size = sizeof k;`: members may be added at its end, and are 0 then.
 */
typedef struct stead_kernel {
    /**
     * sizeof(stead_kernel).
     */
    size_t size;
    /**
     * The name of the result.
     */
    const char *name;
    /**
     * Bytes of a state.
     */
    size_t state_size;
    /**
     * Columns wanted as numbers, by name or position; "*" for all that hold numbers.
     */
    const char *const *numbers;
    /**
     * How many of these names there are.
     */
    size_t number_count;
    /**
     * Columns wanted as text.
     */
    const char *const *texts;
    /**
     * How many of these names there are.
     */
    size_t text_count;
    /**
     * STEAD_NEEDS_BYTES and so on, or-ed together; 0 if columns are all.
     */
    uint32_t needs;
    /**
     * May be NULL: the state of no data is all zero.
     */
    stead_init_fn init;
    /**
     * Must be there.
     */
    stead_update_fn update;
    /**
     * Must be there.
     */
    stead_merge_fn merge;
    /**
     * Must be there.
     */
    stead_finish_fn finish;
    /**
     * Handed to the functions.
     */
    void *user;
    /**
     * Called once with `user` when no run and no request uses the kernel any more, or NULL.
     */
    stead_release_fn release;
} stead_kernel;

/**
 * What a run looks like from outside, now. Members may be added at its end.
 */
typedef struct stead_progress {
    /**
     * The pass over the data, from 1.
     */
    uint64_t pass;
    /**
     * Bytes read in this pass.
     */
    uint64_t bytes;
    /**
     * Bytes that this pass will read.
     */
    uint64_t total_bytes;
    /**
     * Records read in this pass.
     */
    uint64_t rows;
    /**
     * Seconds since this pass began.
     */
    double seconds;
} stead_progress;

/**
 * Watches a run: see stead_request_progress. `progress` is good during the call. Returns 0 to go on and anything
 * else to stop the run. It must not throw or jump out.
 */
typedef int (*stead_progress_fn)(const struct stead_progress *progress, void *user);

/**
 * How ranks talk: functions that a program gives, or libstead_mpi (stead_mpi.h). All may be called by any thread, at the
 * same time as others, and none is NULL. Those that return `int` return 0, or a stead_status with a text in `why`, which has room for
 * STEAD_FABRIC_WHY bytes. Messages between two ranks with one tag arrive in order. Messages of one fabric do not come to
 * another one, also if both were made of the same ranks, one after the other.
 */
typedef struct stead_fabric {
    /**
     * STEAD_FABRIC_VERSION.
     */
    uint32_t version;
    /**
     * Milliseconds after which ranks that wait for others give up.
     */
    uint64_t deadline_ms;
    /**
     * This rank, from 0.
     */
    uint64_t rank;
    /**
     * Number of ranks.
     */
    uint64_t size;
    /**
     * First argument of all functions.
     */
    void *data;
    /**
     * A number for the node of a rank: equal for ranks that share memory and local file systems.
     */
    uint64_t (*node_of)(void *data, uint64_t rank);
    /**
     * Sends a copy of `len` bytes; does not wait until they have arrived.
     */
    int32_t (*send)(void *data, uint64_t to, uint32_t tag, const uint8_t *bytes, uint64_t len, uint8_t *why);
    /**
     * Waits for a message of a rank, or of any (STEAD_ANY_RANK), no longer than so many milliseconds: returns
     * STEAD_FABRIC_NOTHING if none came. Gives the sender and the bytes, which will be given to `free`. Of a rank that is
     * gone and left no message: STEAD_PEER. With the tag STEAD_FABRIC_ENDS it does not wait, and gives an empty message, each time,
     * if the program of that rank has come to its end: all that it has sent is here, and it asks for nothing any more. With
     * the tag STEAD_FABRIC_FORGET and STEAD_ANY_RANK it does not wait either, and gives nothing: `*sender` has the tag of messages
     * that nobody will ask for any more, so that those that lie here may go, and those that come later need not be kept.
     */
    int32_t (*recv)(void *data,
                    uint64_t from,
                    uint32_t tag,
                    uint64_t within_ms,
                    uint64_t *sender,
                    uint8_t **bytes,
                    uint64_t *len,
                    uint8_t *why);
    /**
     * Frees what `recv` gave.
     */
    void (*free)(void *data, uint8_t *bytes, uint64_t len);
    /**
     * STEAD_PEER if a rank is gone.
     */
    int32_t (*alive)(void *data, uint64_t rank, uint8_t *why);
    /**
     * Nothing of it is used any more. Called once, last.
     */
    void (*release)(void *data);
} stead_fabric;

/**
 * Makes a fabric of what `data` points to. Returns 0 or a stead_status with a text in `why`.
 */
typedef int (*stead_make_fabric_fn)(void *data, struct stead_fabric *fabric, char *why);

/**
 * What a run took, of all its parts together. Members may be added at its end.
 */
typedef struct stead_metrics {
    /**
     * Wall seconds.
     */
    double seconds;
    /**
     * Seconds of all cores.
     */
    double cpu_seconds;
    /**
     * Passes over the data.
     */
    uint64_t passes;
    /**
     * Bytes read, over all passes.
     */
    uint64_t bytes_read;
    /**
     * True if records were counted: they are not if all kernels look at bytes alone.
     */
    bool rows_counted;
    /**
     * Records read in the first pass.
     */
    uint64_t rows;
    /**
     * Records that passed the filter in the first pass.
     */
    uint64_t rows_kept;
    /**
     * Records left out because they could not be read (lenient runs).
     */
    uint64_t rows_skipped;
    /**
     * Integers beyond 2^53 that were rounded to the nearest 64-bit float.
     */
    uint64_t integers_rounded;
    /**
     * `bytes_read / seconds`.
     */
    double bytes_per_second;
    /**
     * Core-seconds for 10^9 bytes read.
     */
    double core_seconds_per_gb;
    /**
     * Largest resident memory of the process.
     */
    uint64_t peak_memory_bytes;
} stead_metrics;

/**
 * A value in a report: a number of it and a place in it. Copied freely, never freed, good as long as its report; a
 * value of a report that was freed is told apart from a good one. All zero is no value.
 */
typedef struct stead_value {
    /**
     * Which report.
     */
    uint64_t report;
    /**
     * Which of its values.
     */
    uint64_t node;
} stead_value;

/**
 * What a value is: STEAD_NULL and so on.
 */
typedef int stead_type;

/**
 * How to read a file in sessions. A member that is 0 is chosen from the file, the range and the machine.
 *
 * Begin with `stead_read_options o = {0}; o.size = sizeof o;`: members may be added at its end, and are 0 then.
 */
typedef struct stead_read_options {
    /**
     * sizeof(stead_read_options).
     */
    size_t size;
    /**
     * Reader threads at most.
     */
    size_t readers;
    /**
     * Bytes of a block, rounded up to a multiple of 4096.
     */
    size_t block;
    /**
     * Blocks in flight for each reader.
     */
    size_t depth;
    /**
     * Bytes of memory for blocks; 256 MiB unless told otherwise.
     */
    uint64_t memory;
    /**
     * Milliseconds after which a read that has no answer fails with STEAD_TIMEOUT; ten minutes unless told otherwise.
     */
    uint64_t deadline_ms;
    /**
     * STEAD_READ_ON_DEMAND and so on, or-ed together.
     */
    uint32_t flags;
} stead_read_options;

/**
 * What was done for all sessions of a file so far. Members may be added at its end.
 */
typedef struct stead_read_counts {
    /**
     * Reads that were asked for.
     */
    uint64_t requests;
    /**
     * Of these, answered without waiting.
     */
    uint64_t at_once;
    /**
     * Blocks that readers fetched.
     */
    uint64_t blocks;
    /**
     * Their bytes.
     */
    uint64_t bytes;
    /**
     * Bytes in memory now: of blocks, also those that are being read, and of answers that nobody has taken. No blocks
     * where views are of the page cache.
     */
    uint64_t held;
} stead_read_counts;

/**
 * How to put a file over nodes, or bring it back. What is 0 or NULL is chosen.
 *
 * Begin with `stead_copy_options o = {0}; o.size = sizeof o;`: members may be added at its end, and are 0 then.
 */
typedef struct stead_copy_options {
    /**
     * sizeof(stead_copy_options).
     */
    size_t size;
    /**
     * Bytes of a stripe; 4 MiB unless told otherwise. For stead_put.
     */
    uint64_t stripe;
    /**
     * Parts to cut the file into, in place of one for each dataspace. For stead_put.
     */
    size_t parts;
    /**
     * Threads of each rank that copy.
     */
    size_t threads;
    /**
     * What the file is called in the dataspaces, and its layout, in place of its name. For stead_put.
     */
    const char *name;
    /**
     * Where the layout is written, in place of beside the file; for stead_get where the file is, in place of beside the layout.
     */
    const char *target;
    /**
     * Folders of dataspaces of this node, such as "nvme=/mnt/nvme/me", before those that are configured.
     */
    const char *const *dataspaces;
    /**
     * Their number.
     */
    size_t dataspaces_count;
    /**
     * How records are found, for STEAD_COPY_ALIGN.
     */
    const struct stead_options *open;
    /**
     * Stops it.
     */
    const struct stead_cancel *cancel;
    /**
     * STEAD_COPY_ALIGN and STEAD_COPY_FORCE, or-ed together.
     */
    uint32_t flags;
} stead_copy_options;

/**
 * Bytes that a read brought: `size` of them at `data`, until stead_view_release. They are the page cache's or a
 * block's own where that can be, so they must not be written to, and a view that is kept keeps its block from being used
 * for other bytes. All zero is no view, and nothing to release.
 *
 * Copies of the struct are the same view: it is released once.
 */
typedef struct stead_view {
    /**
     * The first byte.
     */
    const void *data;
    /**
     * How many there are.
     */
    size_t size;
    /**
     * Which view; 0 where the bytes are in a buffer of the caller.
     */
    uint64_t id;
} stead_view;

/**
 * Where bytes lie.
 */
typedef int stead_place;

/**
 * Called once with the answer of a read. If the bytes came, `error` is NULL and `view` is the callee's, to be released
 * with stead_view_release; else `error` is the callee's, to be freed with stead_error_free, and `view` is no view.
 *
 * By the thread that asked, where the bytes are there already; else by a thread that reads, or that looks after
 * deadlines: it must not be kept, and to wait for another read there is an error of kind STEAD_USAGE. Hand the answer on,
 * and do the work elsewhere. The function may ask for more. It must not throw or jump out.
 */
typedef void (*stead_read_fn)(struct stead_view view, struct stead_error *error, void *user);

/**
 * A range of bytes.
 */
typedef struct stead_range {
    /**
     * Its first byte in the file.
     */
    uint64_t offset;
    /**
     * How many there are.
     */
    size_t length;
} stead_range;

/**
 * A read that is done, out of a queue.
 */
typedef struct stead_completion {
    /**
     * What came with the read.
     */
    void *user;
    /**
     * The offset that it asked for.
     */
    uint64_t offset;
    /**
     * The bytes, to be released with stead_view_release; no view if there is an error.
     */
    struct stead_view view;
    /**
     * NULL if the bytes came, else an error to be freed with stead_error_free.
     */
    struct stead_error *error;
} stead_completion;

/**
 * What a snapshot is. Members may be added at its end.
 */
typedef struct stead_tipsy_header {
    /**
     * Its time; in cosmological runs the scale factor.
     */
    double time;
    /**
     * Number of particles of each species: counts[STEAD_GAS] and so on.
     */
    uint64_t counts[3];
    /**
     * Bytes of the header in the file: 32, or 28 in old ones.
     */
    uint64_t header_bytes;
    /**
     * Bytes of one record of each species.
     */
    uint64_t record_bytes[3];
    /**
     * STEAD_F32 or STEAD_F64. All else but velocities is STEAD_F32.
     */
    stead_dtype positions;
    /**
     * STEAD_F32 or STEAD_F64.
     */
    stead_dtype velocities;
    /**
     * True in "standard" files, false in "native" ones.
     */
    bool big_endian;
} stead_tipsy_header;

/**
 * A kind of particles: STEAD_GAS and so on. A file has all of one kind in one piece, in this order.
 */
typedef int stead_species;

/**
 * One number of a record.
 */
typedef struct stead_tipsy_field {
    /**
     * Its name: "mass", "x", "rho", ... Lives for ever.
     */
    const char *name;
    /**
     * STEAD_F32 or STEAD_F64.
     */
    stead_dtype dtype;
    /**
     * Bytes before it in the record.
     */
    size_t offset;
} stead_tipsy_field;

/**
 * A task's records of one species: whole ones, whatever the number of tasks.
 */
typedef struct stead_tipsy_part {
    /**
     * Number of the first one within its species.
     */
    uint64_t first;
    /**
     * How many.
     */
    uint64_t count;
    /**
     * Offset of the first one in the file.
     */
    uint64_t offset;
    /**
     * Bytes of all of them.
     */
    uint64_t bytes;
} stead_tipsy_part;

/**
 * Where a column of particles is to be put: the caller's memory, an array or a member of an array of structs.
 */
typedef struct stead_tipsy_column {
    /**
     * Its name: "mass", "x", "y", "z", "vx", "vy", "vz", "phi"; of gas "rho", "temp", "hsmooth", "metals"; of dark matter
     * "eps"; of stars "metals", "tform", "eps".
     */
    const char *name;
    /**
     * The place of the first particle's value, at any address.
     */
    void *data;
    /**
     * STEAD_F64, or STEAD_F32 where the file has that, too.
     */
    stead_dtype dtype;
    /**
     * Bytes from one value to the next; 0 if they lie side by side.
     */
    size_t stride;
} stead_tipsy_column;

/**
 * Makes the kernel of an operation's name: fills in `kernel`, whose size and name are set, and returns 0, or calls
 * stead_fail and returns something else. Called by several threads at once. It must not throw or jump out.
 */
typedef int (*stead_resolve_fn)(const char *name, struct stead_kernel *kernel, void *user);

/**
 * Which ranks are storage ranks, and how this one serves if it is one. Begin with
 * `stead_offload_options o = {0}; o.size = sizeof o;`: members may be added at its end, and are 0 then.
 */
typedef struct stead_offload_options {
    /**
     * sizeof(stead_offload_options).
     */
    size_t size;
    /**
     * Storage ranks are those on these hosts, such as "node[1-4]" or "a,b", or with "layout:FILE" on the nodes of a layout that
     * the first rank reads, the same on all ranks; NULL if each rank says itself what it is.
     */
    const char *storage_hosts;
    /**
     * True if this rank is a storage rank. Only where there are no `storage_hosts`.
     */
    bool is_storage;
    /**
     * What a storage rank makes kernels of operations with, or NULL if there are none.
     */
    stead_resolve_fn resolve;
    /**
     * Handed to it.
     */
    void *user;
    /**
     * The most memory that an ask gets on this node, whatever it asks for; 0 for no such bound.
     */
    uint64_t memory;
} stead_offload_options;

/**
 * A stretch of bytes.
 */
typedef struct stead_stretch {
    /**
     * Where it begins in the tile.
     */
    uint64_t offset;
    /**
     * How many bytes it has.
     */
    uint64_t length;
} stead_stretch;

/**
 * Some of the bytes of a file, as MPI-IO's views say it: from `displacement` on, a tile of `extent` bytes repeats for
 * ever, and of each the stretches are seen, one after the other. Of what is seen `skip` bytes are left out, and `bytes`
 * bytes are meant.
 */
typedef struct stead_file_view {
    /**
     * sizeof(stead_file_view).
     */
    size_t size;
    /**
     * Where the first tile begins in the file.
     */
    uint64_t displacement;
    /**
     * Bytes of a tile.
     */
    uint64_t extent;
    /**
     * What is seen of each: ascending, none in another, the last one ending no more than `extent` bytes after the first
     * one begins.
     */
    const struct stead_stretch *stretches;
    /**
     * How many stretches there are, at most 2^20 when neighbours are one.
     */
    size_t stretch_count;
    /**
     * Bytes that are left out at the beginning.
     */
    uint64_t skip;
    /**
     * Bytes that are meant; all of them must be in the file.
     */
    uint64_t bytes;
    /**
     * Bytes that the file has where it was opened: where it has others it is another one, which is an error. 0 if that is
     * not to be looked at.
     */
    uint64_t file_bytes;
} stead_file_view;

/**
 * Over which bytes a request runs, besides its kernels which operations. Begin with
 * `stead_offload_job j = {0}; j.size = sizeof j;`.
 */
typedef struct stead_offload_job {
    /**
     * sizeof(stead_offload_job).
     */
    size_t size;
    /**
     * Files, globs, directories and layouts, as the storage ranks see them.
     */
    const char *const *paths;
    /**
     * How many there are; one with a view.
     */
    size_t path_count;
    /**
     * How to open them; may be NULL.
     */
    const struct stead_options *options;
    /**
     * What is seen of the file, or NULL for all of it.
     */
    const struct stead_file_view *view;
    /**
     * Names of operations, of which `resolve` of the storage ranks makes kernels. Their results come after those of the
     * request.
     */
    const char *const *operations;
    /**
     * How many there are.
     */
    size_t operation_count;
    /**
     * What this rank makes kernels of them with, where it runs the job itself.
     */
    stead_resolve_fn resolve;
    /**
     * Handed to it.
     */
    void *user;
} stead_offload_job;

/**
 * How far a transfer is. Members may be added at its end.
 */
typedef struct stead_stage_progress {
    /**
     * Bytes of files that are moved. While a sync with the option "checksum" is being planned: bytes that were compared, and so are
     * the three numbers that follow.
     */
    uint64_t bytes_done;
    /**
     * Of so many; 0 before it is planned.
     */
    uint64_t bytes;
    /**
     * Files, links and folders that are done.
     */
    uint64_t files_done;
    /**
     * Of so many; 0 before it is planned.
     */
    uint64_t files;
    /**
     * Seconds since it began, or went on.
     */
    double seconds;
    /**
     * Seconds that it still needs, most likely: never NaN or infinite, 0 before it is planned and once all is done.
     */
    double left;
    /**
     * It takes hardly less.
     */
    double left_low;
    /**
     * It takes hardly more.
     */
    double left_high;
    /**
     * False while it waits or is being planned, when the numbers above say little.
     */
    bool planned;
    /**
     * True once it has ended, in whatever way.
     */
    bool ended;
} stead_stage_progress;

/**
 * Something that lies at a location, as stead_ls tells of it. Good during the call. Members may be added at its end.
 */
typedef struct stead_entry {
    /**
     * Its name below the folder that was asked for, as the system has it, which may be no UTF-8; of a file or a pattern one that
     * leads there from where the location does.
     */
    const char *name;
    /**
     * "file", "folder", "link" or "special".
     */
    const char *kind;
    /**
     * Its bytes; 0 of a folder.
     */
    uint64_t size;
    /**
     * When its bytes were changed, in seconds since 1970; NaN where nobody knows it, as of folders of buckets.
     */
    double modified;
} stead_entry;

/**
 * Is told of what lies at a location: see stead_ls. Returns 0 to go on and anything else to stop. It must not throw or jump out.
 */
typedef int (*stead_entry_fn)(const struct stead_entry *entry, void *user);

/**
 * How a flow is run. All of its ranks say the same, but for their rank. A member that is 0 is what is said of it.
 *
 * Begin with `stead_flow_options o = {0}; o.size = sizeof o;`: members may be added at its end, and are 0 then.
 */
typedef struct stead_flow_options {
    /**
     * sizeof(stead_flow_options).
     */
    size_t size;
    /**
     * Which of the processes that share the work this is, from 0 on.
     */
    uint64_t rank;
    /**
     * How many there are; 1 unless told otherwise.
     */
    uint64_t ranks;
    /**
     * Threads of this one; as many as there are processors unless told otherwise.
     */
    size_t threads;
    /**
     * Bytes that arrays may take which are made or copied here; 1 GiB unless told otherwise.
     */
    uint64_t memory;
    /**
     * Steps after which it ends; none unless told otherwise.
     */
    uint64_t steps;
    /**
     * Milliseconds after which waiting for anybody fails with STEAD_TIMEOUT; ten minutes unless told otherwise.
     */
    uint64_t timeout_ms;
    /**
     * Ends it with STEAD_CANCELLED when it is set, or NULL. It must not be freed before the flow has ended.
     */
    const struct stead_cancel *cancel;
    /**
     * Folders of dataspaces such as "memory=/dev/shm/me", before those that are configured. Streams lie in "memory".
     */
    const char *const *dataspaces;
    /**
     * How many there are.
     */
    size_t dataspaces_count;
    /**
     * Programs on several nodes of which this is one, or NULL. All ranks of its part run the flow: `rank` and `ranks` are those of
     * the coupling.
     */
    const struct stead_coupling *coupling;
} stead_flow_options;

/**
 * Whose streams are told of, or removed: those of this node, and of the other ones of the pool of its daemon. A member that is 0 is what is said of it.
 *
 * Begin with `stead_stream_survey s = {0}; s.size = sizeof s;`: members may be added at its end, and are 0 then.
 */
typedef struct stead_stream_survey {
    /**
     * sizeof(stead_stream_survey).
     */
    size_t size;
    /**
     * Folders of dataspaces such as "memory=/dev/shm/me", before those that are configured. Streams of this node lie in "memory".
     */
    const char *const *dataspaces;
    /**
     * How many there are.
     */
    size_t dataspaces_count;
    /**
     * The names of other nodes of the pool that are asked. NULL: all. None are asked where it is not NULL and there are none.
     */
    const char *const *nodes;
    /**
     * How many there are.
     */
    size_t nodes_count;
    /**
     * Milliseconds that other nodes are waited for: those that have not answered by then are named. Ten seconds unless told otherwise.
     */
    uint64_t timeout_ms;
} stead_stream_survey;

/**
 * How a stream is written. All of its writers say the same, but for their rank. A member that is 0 is what is said of it.
 *
 * Begin with `stead_stream_writer_options o = {0}; o.size = sizeof o;`: members may be added at its end, and are 0 then.
 */
typedef struct stead_stream_writer_options {
    /**
     * sizeof(stead_stream_writer_options).
     */
    size_t size;
    /**
     * Which of the writers this is, from 0 on.
     */
    uint64_t rank;
    /**
     * How many writers there are; 1 unless told otherwise.
     */
    uint64_t writers;
    /**
     * Complete steps that stay when all readers have had them, for those who come late and those who go back; 1 unless told otherwise,
     * STEAD_STREAM_KEEP_NONE for none.
     */
    uint64_t keep;
    /**
     * Complete steps that a group of readers may be behind before writers wait for it; 2 unless told otherwise.
     */
    uint64_t queue;
    /**
     * Bytes of the arrays of all writers on this node; 4 GiB unless told otherwise.
     */
    uint64_t memory;
    /**
     * Groups of readers that are to be there before the first step begins.
     */
    uint64_t readers;
    /**
     * Milliseconds after which waiting for anybody fails with STEAD_TIMEOUT; ten minutes unless told otherwise.
     */
    uint64_t timeout_ms;
    /**
     * Folders of dataspaces such as "memory=/dev/shm/me", before those that are configured. Streams lie in "memory". None with a
     * coupling, which has its own.
     */
    const char *const *dataspaces;
    /**
     * How many there are.
     */
    size_t dataspaces_count;
    /**
     * Programs on several nodes of which this is one, or NULL. All ranks of its part write the stream: `rank` and `writers` are
     * those of the coupling.
     */
    const struct stead_coupling *coupling;
    /**
     * Where all steps are recorded, too, as they are written: a folder, by its path or in a dataspace, such as "nvme0://runs/sim", or NULL.
     * It is made if it is not there, and has no steps yet. Readers open it as a stream, while this one goes on and after that. If a quota of
     * a dataspace leaves no room, the next call fails with STEAD_NO_SPACE, as if the device were full.
     */
    const char *persist;
    /**
     * Where steps are recorded that readers with STEAD_STREAM_SPILL have not had when there is no room for them in memory: a folder, which
     * goes with the stream, or NULL; or "auto", the first dataspace that has room for `spill_limit` bytes, or else for as many as `memory`:
     * those of this node go before those of all nodes, and then it goes by names. If a quota leaves no room, writers wait for those readers,
     * too. Not with `persist`, which serves such readers, too.
     */
    const char *spill;
    /**
     * Bytes that the files of `spill` may take on this node: beyond that writers wait for those readers, too. 0: as many as the disk has.
     */
    uint64_t spill_limit;
} stead_stream_writer_options;

/**
 * With which step a group of readers begins.
 */
typedef int stead_stream_start;

/**
 * What writers do when a group of readers is too far behind.
 */
typedef int stead_stream_behind;

/**
 * How a stream is read. All ranks of a group say the same, but for their rank. A member that is 0 is what is said of it.
 *
 * Begin with `stead_stream_reader_options o = {0}; o.size = sizeof o;`: members may be added at its end, and are 0 then.
 */
typedef struct stead_stream_reader_options {
    /**
     * sizeof(stead_stream_reader_options).
     */
    size_t size;
    /**
     * The name of the group, each of which has all steps; "readers" if it is NULL.
     */
    const char *group;
    /**
     * Which rank of the group this is, from 0 on. Only if `ranks` is not 0.
     */
    uint64_t rank;
    /**
     * How many ranks the group has. 0: all ranks of its part, with a coupling, each in its place there; and one without.
     */
    uint64_t ranks;
    /**
     * With which step the group begins: STEAD_STREAM_OLDEST, STEAD_STREAM_NEXT or STEAD_STREAM_FIRST.
     */
    stead_stream_start start;
    /**
     * What writers do when it is behind: STEAD_STREAM_BLOCK, STEAD_STREAM_DROP or STEAD_STREAM_SPILL.
     */
    stead_stream_behind behind;
    /**
     * Milliseconds after which waiting for anybody fails with STEAD_TIMEOUT; ten minutes unless told otherwise.
     */
    uint64_t timeout_ms;
    /**
     * Threads that copy large boxes; as many as are of use unless told otherwise.
     */
    size_t threads;
    /**
     * Folders of dataspaces such as "memory=/dev/shm/me", before those that are configured. Streams lie in "memory". None with a
     * coupling, which has its own.
     */
    const char *const *dataspaces;
    /**
     * How many there are.
     */
    size_t dataspaces_count;
    /**
     * Programs on several nodes of which this is one, or NULL. Writers may be on any of these nodes, whoever has begun them.
     */
    const struct stead_coupling *coupling;
    /**
     * The names of other nodes of the pool of daemons that writers may be on. NULL: all are asked, unless all of the stream is written
     * here or, with a coupling, on its nodes. None are asked where it is not NULL and there are none.
     */
    const char *const *nodes;
    /**
     * How many there are.
     */
    size_t nodes_count;
    /**
     * Complete steps that the group may be behind; those of the stream's `queue` unless told otherwise. With STEAD_STREAM_DROP older ones are
     * passed over: with 1 it is given the newest step each time. With STEAD_STREAM_SPILL older ones are read from files.
     */
    uint64_t queue;
    /**
     * Complete steps that the group has had which stay for it, beside those that the stream keeps: with STEAD_STREAM_BLOCK in memory, with
     * STEAD_STREAM_SPILL there or in files, with STEAD_STREAM_DROP as long as there is room.
     */
    uint64_t keep;
} stead_stream_reader_options;

/**
 * What a variable of a step is. What it points to lives as long as the step. Members may be added at its end.
 */
typedef struct stead_stream_variable {
    /**
     * Its name.
     */
    const char *name;
    /**
     * The type of its elements: STEAD_F64 and so on.
     */
    stead_dtype dtype;
    /**
     * How many dimensions it has; a scalar has none.
     */
    size_t ndim;
    /**
     * The lengths of the whole array.
     */
    const uint64_t *shape;
    /**
     * The names of its dimensions; NULL if they have none.
     */
    const char *const *dims;
    /**
     * How many attributes it has.
     */
    size_t attributes;
} stead_stream_variable;

/**
 * What is said of a variable beside its data. What it points to lives as long as the step. Members may be added at its end.
 */
typedef struct stead_stream_attribute {
    /**
     * By which it is asked for.
     */
    const char *key;
    /**
     * STEAD_TEXT, STEAD_INT or STEAD_DOUBLE.
     */
    stead_type kind;
    /**
     * True if it was given as a list.
     */
    bool is_list;
    /**
     * How many values there are: 1 if it is no list.
     */
    size_t count;
    /**
     * Those of STEAD_TEXT; else NULL.
     */
    const char *const *texts;
    /**
     * Those of STEAD_INT; else NULL.
     */
    const int64_t *ints;
    /**
     * Those of STEAD_DOUBLE; else NULL.
     */
    const double *doubles;
} stead_stream_attribute;

/**
 * Called with each step of a subscription, in a thread of the library: `step` is the function's, to be freed with stead_stream_step_free. At
 * last it is called with NULL, and with NULL for `error` too if the stream has ended, else with the error that ends it, which it frees with
 * stead_error_free: that of stead_stream_reader_next, STEAD_TIMEOUT too.
 */
typedef void (*stead_stream_call_fn)(struct stead_stream_step *step, struct stead_error *error, void *user);

/**
 * An array that a function is given, or is to make. It lives as long as the call.
 */
typedef struct stead_flow_array {
    /**
     * Its elements, in C order.
     */
    const void *data;
    /**
     * How many bytes they are.
     */
    size_t bytes;
    /**
     * Their type: STEAD_F64 and so on.
     */
    stead_dtype dtype;
    /**
     * How many dimensions it has; a single number has none.
     */
    size_t ndim;
    /**
     * Their lengths.
     */
    const uint64_t *shape;
} stead_flow_array;

/**
 * A function of the program: makes the array `wanted`, whose elements it writes to `to`, of those that it is given. They are zeros before, and
 * `wanted.data` is `to`. It returns 0, or any other number if it has failed, which ends the flow. It is called by the thread that runs the
 * flow, and must not end it by longjmp or an exception.
 */
typedef int (*stead_flow_fn)(const struct stead_flow_array *given,
                             size_t count,
                             const struct stead_flow_array *wanted,
                             void *to,
                             void *user);

/**
 * Done.
 */
#define STEAD_OK 0

/**
 * The request makes no sense: unknown kernel, bad option, no such column, a NULL or freed handle.
 */
#define STEAD_USAGE 1

/**
 * A file, glob or directory that is not there.
 */
#define STEAD_NOT_FOUND 2

/**
 * The operating system refused access.
 */
#define STEAD_PERMISSION 3

/**
 * The bytes do not have the format they were said or found to have.
 */
#define STEAD_FORMAT 4

/**
 * One record or value is bad, in a file whose format is right.
 */
#define STEAD_DATA 5

/**
 * The file changed or shrank while it was read.
 */
#define STEAD_CHANGED 6

/**
 * A budget (memory, groups, record length) was reached.
 */
#define STEAD_LIMIT 7

/**
 * No space left on the device, or over quota.
 */
#define STEAD_NO_SPACE 8

/**
 * The device or the operating system failed.
 */
#define STEAD_IO 9

/**
 * The caller stopped the work.
 */
#define STEAD_CANCELLED 10

/**
 * A peer rank failed or did not answer in time.
 */
#define STEAD_PEER 11

/**
 * There was no answer before the deadline.
 */
#define STEAD_TIMEOUT 13

/**
 * A defect of stead itself.
 */
#define STEAD_INTERNAL 12

/**
 * 32-bit float.
 */
#define STEAD_F32 1

/**
 * 64-bit float.
 */
#define STEAD_F64 2

/**
 * 8-bit signed integer.
 */
#define STEAD_I8 3

/**
 * 16-bit signed integer.
 */
#define STEAD_I16 4

/**
 * 32-bit signed integer.
 */
#define STEAD_I32 5

/**
 * 64-bit signed integer.
 */
#define STEAD_I64 6

/**
 * 8-bit unsigned integer.
 */
#define STEAD_U8 7

/**
 * 16-bit unsigned integer.
 */
#define STEAD_U16 8

/**
 * 32-bit unsigned integer.
 */
#define STEAD_U32 9

/**
 * 64-bit unsigned integer.
 */
#define STEAD_U64 10

/**
 * The last index (row-major), as in C.
 */
#define STEAD_ORDER_C 0

/**
 * The first index (column-major), as in Fortran.
 */
#define STEAD_ORDER_FORTRAN 1

/**
 * No value at all: all zero, or of a report that was freed.
 */
#define STEAD_INVALID 0

/**
 * No answer, such as the mean of nothing.
 */
#define STEAD_NULL 1

/**
 * Yes or no.
 */
#define STEAD_BOOL 2

/**
 * A count.
 */
#define STEAD_INT 3

/**
 * A number.
 */
#define STEAD_DOUBLE 4

/**
 * Text.
 */
#define STEAD_TEXT 5

/**
 * Values by index.
 */
#define STEAD_LIST 6

/**
 * Values by name, in the order to show them.
 */
#define STEAD_MAP 7

/**
 * In the page cache: the view takes no memory.
 */
#define STEAD_IN_CACHE 1

/**
 * In a block of the session, which cannot be used for other bytes while there is a view of it. So it is on network file
 * systems, with direct reads, and with an engine that was asked for by name.
 */
#define STEAD_IN_BLOCK 2

/**
 * In memory of the view's own.
 */
#define STEAD_IN_MEMORY 3

/**
 * Gas.
 */
#define STEAD_GAS 0

/**
 * Dark matter.
 */
#define STEAD_DARK 1

/**
 * Stars.
 */
#define STEAD_STAR 2

/**
 * The oldest one that is there. A stream that is over and that nobody has read is read, too.
 */
#define STEAD_STREAM_OLDEST 0

/**
 * The next one that becomes complete.
 */
#define STEAD_STREAM_NEXT 1

/**
 * The first one of all, of a stream that is recorded (`persist` of its writers): those that have gone from memory are read from files.
 */
#define STEAD_STREAM_FIRST 2

/**
 * They wait for it.
 */
#define STEAD_STREAM_BLOCK 0

/**
 * They go on: steps go that the group has not had, and it is told how many. All of its ranks are given the same ones, and none is further
 * ahead of the others than the `queue` of the stream.
 */
#define STEAD_STREAM_DROP 1

/**
 * They go on, and the group has all steps: those for which there is no room in memory it reads from files. The stream is written with
 * `spill` or `persist`.
 */
#define STEAD_STREAM_SPILL 2

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Frees a text that a function has written for the caller. NULL is nothing to do; what is no such text, or was
 * freed, is left alone.
 */
void stead_text_free(char *text);

/**
 * The version of the library that is running, such as "0.1.0"; STEAD_VERSION is that of the header. Lives for
 * ever.
 */
const char *stead_version(void);

/**
 * Number of handles and texts that are not freed, flags of stead_cancel_new not among them: 0 at the end of a
 * program that frees all.
 */
size_t stead_handles_alive(void);

/**
 * The kernels as a JSON list of objects with "name", "summary", "usage", "definition", "error", "cost", "source"
 * and "examples", as `stead kernels --format json` prints it. Lives for ever.
 */
const char *stead_kernels_json(void);

/**
 * Parses a size such as "512MiB" or "1e9", as the command does.
 *
 * Errors: STEAD_USAGE.
 */
stead_status stead_parse_size(const char *text, uint64_t *bytes, struct stead_error **error);

/**
 * The kind of an error: STEAD_USAGE and so on. STEAD_OK for NULL or a handle that is no error.
 */
stead_status stead_error_kind(const struct stead_error *error);

/**
 * The name of a kind, such as "not found"; "ok" for STEAD_OK and "unknown" for a number that is none. Lives for
 * ever.
 */
const char *stead_status_name(stead_status status);

/**
 * The whole message in one line, with file, line or offset, and column, as the command prints it. NULL if the
 * handle is no error. Lives as long as the error.
 */
const char *stead_error_message(const struct stead_error *error);

/**
 * The message without the place. NULL if the handle is no error. Lives as long as the error.
 */
const char *stead_error_what(const struct stead_error *error);

/**
 * What can be done about it, or NULL. Lives as long as the error.
 */
const char *stead_error_hint(const struct stead_error *error);

/**
 * The file, or NULL. Lives as long as the error.
 */
const char *stead_error_path(const struct stead_error *error);

/**
 * The column, or NULL. Lives as long as the error.
 */
const char *stead_error_column(const struct stead_error *error);

/**
 * The line in the (decompressed) file, from 1; 0 if it is not known.
 */
uint64_t stead_error_line(const struct stead_error *error);

/**
 * True if the byte offset in the (decompressed) file is known; it is then written to `offset`, unless that is
 * NULL.
 */
bool stead_error_offset(const struct stead_error *error, uint64_t *offset);

/**
 * True if the same call may succeed when it is made again.
 */
bool stead_error_is_retryable(const struct stead_error *error);

/**
 * Frees an error and its texts. NULL is nothing to do; a handle that is no error any more is left alone.
 */
void stead_error_free(struct stead_error *error);

/**
 * What the last call that failed on this thread had to say, with its hint; "" if none has failed, and where it is kept no more: in what
 * exit() calls. For calls that return no error, and for those that were given NULL for it. Lives until the next failure on this thread.
 */
const char *stead_last_message(void);

/**
 * Makes options of which none is set.
 */
stead_status stead_options_new(struct stead_options **options, struct stead_error **error);

/**
 * Sets one option by the name that it has on the command line: "type", "delimiter", "quote", "header",
 * "comment", "missing", "names", "column-type", "dtype", "shape", "order", "byte-order", "skip",
 * "record-length", "compression", "species", "dataspace", "storage-hosts" (the hosts whose ranks have the data, such as "node[1-4]";
 * "layout" for the nodes of the layouts that are opened, "layout:FILE" for those of another one; for stead_open_ranks). "missing" (one token), "column-type" (NAME=number or NAME=text) and
 * "dataspace" (NAME=/PATH: the folder of a dataspace of this node, for parts of layouts) add to what was set before; the
 * others replace it. Sizes may have units, "names" has commas between names.
 *
 * Errors: STEAD_USAGE for a name or a value that there is not.
 */
stead_status stead_options_set(struct stead_options *options,
                               const char *name,
                               const char *value,
                               struct stead_error **error);

/**
 * The `n` column names, in place of those in the header or of positions. They are copied.
 *
 * Errors: STEAD_USAGE for NULL.
 */
stead_status stead_options_set_names(struct stead_options *options,
                                     const char *const *names,
                                     size_t n,
                                     struct stead_error **error);

/**
 * The `n` tokens that mean "no value", in place of the usual ones; none if `n` is 0. They are copied.
 *
 * Errors: STEAD_USAGE for NULL.
 */
stead_status stead_options_set_missing(struct stead_options *options,
                                       const char *const *tokens,
                                       size_t n,
                                       struct stead_error **error);

/**
 * The lengths of the `ndim` dimensions of a raw array. They are copied.
 *
 * Errors: STEAD_USAGE for NULL.
 */
stead_status stead_options_set_shape(struct stead_options *options,
                                     const uint64_t *shape,
                                     size_t ndim,
                                     struct stead_error **error);

/**
 * Frees options. NULL is nothing to do; a handle that is none any more is left alone.
 */
void stead_options_free(struct stead_options *options);

/**
 * Opens a file, a glob or a directory as a dataset. `options` may be NULL: all is detected. Names are UTF-8.
 *
 * Errors: STEAD_NOT_FOUND, STEAD_PERMISSION, STEAD_IO; STEAD_USAGE for options that contradict each other or the
 * data; STEAD_FORMAT for files that are empty, of no known format, or unlike the first one.
 */
stead_status stead_open(const char *path,
                        const struct stead_options *options,
                        struct stead_dataset **dataset,
                        struct stead_error **error);

/**
 * Opens `n` files, globs or directories as one dataset, in this order. As stead_open.
 */
stead_status stead_open_all(const char *const *paths,
                            size_t n,
                            const struct stead_options *options,
                            struct stead_dataset **dataset,
                            struct stead_error **error);

/**
 * What the dataset is, with its first `rows` records, as the JSON document of `stead describe --format json`. The
 * text is the caller's, to be freed with stead_text_free.
 *
 * Errors: those of reading the first records.
 */
stead_status stead_dataset_describe(const struct stead_dataset *dataset,
                                    size_t rows,
                                    char **json,
                                    struct stead_error **error);

/**
 * The format: "csv", "tsv", "lines", "records", "npy", "raw", "tipsy", "table", "recorded". NULL if the handle is no dataset. Lives as
 * long as the dataset.
 */
const char *stead_dataset_format(const struct stead_dataset *dataset);

/**
 * Number of columns; 0 for lines and opaque records, and if the handle is no dataset.
 */
size_t stead_dataset_column_count(const struct stead_dataset *dataset);

/**
 * The name of column `i`, or NULL if there is none. Lives as long as the dataset.
 */
const char *stead_dataset_column_name(const struct stead_dataset *dataset, size_t i);

/**
 * The type of column `i`: "number" (written as text), "text", or an element type such as "f64". NULL if there is no
 * such column. Lives as long as the dataset.
 */
const char *stead_dataset_column_type(const struct stead_dataset *dataset, size_t i);

/**
 * The index of the column that `name` means: an exact name, or, where no column has that name, a position.
 *
 * Errors: STEAD_USAGE, with the closest name in the hint.
 */
stead_status stead_dataset_find_column(const struct stead_dataset *dataset,
                                       const char *name,
                                       size_t *index,
                                       struct stead_error **error);

/**
 * Number of dimensions of an array, 0 for other data and for a scalar. The lengths are written to `shape`, as many
 * as fit into `room`; it may be NULL if `room` is 0.
 */
size_t stead_dataset_shape(const struct stead_dataset *dataset, uint64_t *shape, size_t room);

/**
 * Number of files (of columns, for a table in memory); 0 if the handle is no dataset.
 */
size_t stead_dataset_file_count(const struct stead_dataset *dataset);

/**
 * The name of file `i`, or NULL if there is none. Lives as long as the dataset.
 */
const char *stead_dataset_file(const struct stead_dataset *dataset, size_t i);

/**
 * Bytes of all files, as they lie; 0 if the handle is no dataset.
 */
uint64_t stead_dataset_bytes(const struct stead_dataset *dataset);

/**
 * Frees a dataset and its texts. A run that is under way on another thread goes on to its end. NULL is nothing to
 * do; a handle that is no dataset any more is left alone.
 */
void stead_dataset_free(struct stead_dataset *dataset);

/**
 * Opens bytes in memory as a dataset: text, .npy, or raw elements with their type in `options` (NULL: all is
 * detected). `name` stands where a file's path would, and says as much about the format as a file's name does;
 * NULL is "memory".
 *
 * The `len` bytes are lent, not copied: they must stay as they are until `release` is called. It is called exactly
 * once, also when this function fails.
 *
 * Errors: STEAD_USAGE, STEAD_FORMAT.
 */
stead_status stead_open_bytes(const char *name,
                              const void *data,
                              size_t len,
                              const struct stead_options *options,
                              stead_release_fn release,
                              void *user,
                              struct stead_dataset **dataset,
                              struct stead_error **error);

/**
 * Opens an array in memory as a dataset: `shape` has the `ndim` lengths, `order` says which index runs fastest,
 * the elements lie close together in this machine's byte order. A 2-d array has a row for each first index and a
 * column for each second one, which are called "0", "1" and so on; any other has a row for each element.
 *
 * The elements are lent, not copied: they must stay as they are until `release` is called. It is called exactly
 * once, also when this function fails.
 *
 * Errors: STEAD_USAGE, STEAD_FORMAT.
 */
stead_status stead_open_array(const char *name,
                              const void *data,
                              stead_dtype dtype,
                              size_t ndim,
                              const uint64_t *shape,
                              stead_order order,
                              stead_release_fn release,
                              void *user,
                              struct stead_dataset **dataset,
                              struct stead_error **error);

/**
 * Opens `n` columns of `rows` rows each as a dataset. A table has numbers only: kernels of bytes and text do not
 * run on it.
 *
 * The elements are lent, not copied: those of each column must stay as they are until its `release` is called. It
 * is called exactly once for each column, also when this function fails, unless `columns` itself is NULL.
 *
 * Errors: STEAD_USAGE, for two columns of one name too.
 */
stead_status stead_open_table(const struct stead_column *columns,
                              size_t n,
                              uint64_t rows,
                              struct stead_dataset **dataset,
                              struct stead_error **error);

/**
 * Makes a request that asks for nothing yet.
 */
stead_status stead_request_new(struct stead_request **request, struct stead_error **error);

/**
 * Asks for a kernel by its specification, such as "mean:arr_delay", which is the name of its result too. It is
 * looked at when the request is run.
 *
 * Errors: STEAD_USAGE for NULL.
 */
stead_status stead_request_kernel(struct stead_request *request, const char *spec, struct stead_error **error);

/**
 * Asks for a kernel of one's own, beside or in place of others. `kernel` is copied, with all that it points to but
 * `user`; `kernel.release` is called once when nothing uses it any more, also when this function fails (unless
 * `kernel` itself is NULL or of a size that is not known).
 *
 * Errors: STEAD_USAGE for a kernel that lacks what it must have.
 */
stead_status stead_request_own_kernel(struct stead_request *request,
                                      const struct stead_kernel *kernel,
                                      struct stead_error **error);

/**
 * Only rows for which this holds, such as "dep_delay > 0"; NULL takes it back. It is parsed when the request is
 * run. `stead kernels where` explains the language.
 *
 * Errors: STEAD_USAGE for text that is no UTF-8.
 */
stead_status stead_request_where(struct stead_request *request, const char *filter, struct stead_error **error);

/**
 * Answers for each value of this column, and of those named before; NULL takes all back. A result is then a map
 * from group to what the kernel says.
 *
 * Errors: STEAD_USAGE for text that is no UTF-8.
 */
stead_status stead_request_by(struct stead_request *request, const char *column, struct stead_error **error);

/**
 * Worker threads; 0, the default, is one for each processor. Never changes an answer.
 */
stead_status stead_request_threads(struct stead_request *request, size_t threads, struct stead_error **error);

/**
 * Bytes of memory that buffers and states may take; 1 GiB unless told otherwise, at least 8 MiB.
 */
stead_status stead_request_memory(struct stead_request *request, uint64_t bytes, struct stead_error **error);

/**
 * Bytes of one extent. Never changes an answer.
 */
stead_status stead_request_extent(struct stead_request *request, size_t bytes, struct stead_error **error);

/**
 * Whether records that cannot be read are counted and skipped, in place of failing.
 */
stead_status stead_request_lenient(struct stead_request *request, bool lenient, struct stead_error **error);

/**
 * Sets one of the means by the name that it has on the command line: "threads", "memory", "chunk" (sizes may have
 * units), "engine" (auto, uring, pread), "queue-depth", "direct" and "lenient" (yes, no), "place" (auto, pull, push, vector,
 * split; where to compute on data that were opened with storage hosts).
 *
 * Errors: STEAD_USAGE for a name or a value that there is not.
 */
stead_status stead_request_set(struct stead_request *request,
                               const char *name,
                               const char *value,
                               struct stead_error **error);

/**
 * Says that the caller is going to write this file when the run is done, as stead_report_plot does: the run is
 * refused if it would replace the data or another output.
 *
 * Errors: STEAD_USAGE for NULL.
 */
stead_status stead_request_output(struct stead_request *request, const char *path, struct stead_error **error);

/**
 * Lets `cancel` stop the runs of this request; NULL takes it back. The handle may be freed before the request.
 *
 * Errors: STEAD_USAGE for a handle that is none.
 */
stead_status stead_request_cancel(struct stead_request *request,
                                  struct stead_cancel *cancel,
                                  struct stead_error **error);

/**
 * Has `progress` called about ten times a second during runs of this request, and once at the end of each pass,
 * from the thread that called stead_run; NULL takes it back. `user` is handed to it. If it returns anything but 0,
 * the run is stopped with STEAD_CANCELLED, as by the request's stead_cancel, which is then set.
 */
stead_status stead_request_progress(struct stead_request *request,
                                    stead_progress_fn progress,
                                    void *user,
                                    struct stead_error **error);

/**
 * Frees a request. A run of it that is under way on another thread goes on to its end. NULL is nothing to do; a
 * handle that is no request any more is left alone.
 */
void stead_request_free(struct stead_request *request);

/**
 * Makes a flag that is not set, to be freed with stead_cancel_free. At most 1024 exist at a time.
 *
 * Errors: STEAD_LIMIT if there are too many.
 */
stead_status stead_cancel_new(struct stead_cancel **cancel, struct stead_error **error);

/**
 * Sets the flag: runs that hold it end soon with STEAD_CANCELLED, and runs that begin with it end at once.
 * What is no handle, or was freed, is left alone. Safe in a signal handler.
 */
void stead_cancel_request(struct stead_cancel *cancel);

/**
 * True if the flag is set; false for what is no handle. Safe in a signal handler.
 */
bool stead_cancel_is_requested(const struct stead_cancel *cancel);

/**
 * Takes the flag back, for the next run. Not while a run holds it: that one may or may not have seen it.
 */
void stead_cancel_reset(struct stead_cancel *cancel);

/**
 * Frees a flag. Requests and runs that hold it go on, and cannot be stopped by it any more. NULL is nothing to
 * do.
 */
void stead_cancel_free(struct stead_cancel *cancel);

/**
 * Runs `request` over `dataset` and waits for its end. The report is a new handle, to be freed with
 * stead_report_free. Several threads may run the same request over the same dataset at the same time.
 *
 * Errors: STEAD_USAGE for a request that makes no sense for the dataset; STEAD_DATA, STEAD_FORMAT, STEAD_CHANGED,
 * STEAD_IO for what is met in the data; STEAD_LIMIT; STEAD_NO_SPACE; STEAD_CANCELLED; what a kernel of one's own
 * returns. No output file is left after an error.
 */
stead_status stead_run(const struct stead_dataset *dataset,
                       const struct stead_request *request,
                       struct stead_report **report,
                       struct stead_error **error);

/**
 * Runs `request` over `dataset` on all ranks of a fabric, which is made first: all ranks call this, with the same request
 * over the same files, which all of them see. Each takes a share of the bytes, and all get the same report, with the results
 * that stead_run gives. Threads and memory of a node are for all ranks on it. With MPI, stead_mpi_run of stead_mpi.h is
 * simpler.
 *
 * Errors: those of stead_run, the same on all ranks; STEAD_USAGE on all ranks if one of them gives arguments that make no
 * sense, but for `make`, without which it can tell nobody, if they ask for different things or run different versions of
 * stead, and for data in memory; STEAD_CHANGED if their files differ; STEAD_PEER if a rank is gone; those of `make`.
 * After an error no part of an output file is left: it is not there, or whole if a rank is lost when all have succeeded.
 */
stead_status stead_run_ranks(stead_make_fabric_fn make,
                             void *data,
                             const struct stead_dataset *dataset,
                             const struct stead_request *request,
                             struct stead_report **report,
                             struct stead_error **error);

/**
 * The whole report as the JSON document of `stead run --format json`: "results", "plan", "metrics". Floats read
 * back to the same bits; NaN and infinities are strings. NULL if the handle is no report. Lives as long as the
 * report.
 */
const char *stead_report_json(const struct stead_report *report);

/**
 * The plan as JSON: what was decided before and during the run. NULL if the handle is no report. Lives as long as
 * the report.
 */
const char *stead_report_plan(const struct stead_report *report);

/**
 * What it took as JSON. NULL if the handle is no report. Lives as long as the report.
 */
const char *stead_report_metrics_json(const struct stead_report *report);

/**
 * Copies what it took to `metrics`, which has `size` bytes: sizeof(stead_metrics) of the header that the caller was
 * compiled with. What only a later one has is 0.
 *
 * Errors: STEAD_USAGE for a size that no version has.
 */
stead_status stead_report_metrics(const struct stead_report *report,
                                  struct stead_metrics *metrics,
                                  size_t size,
                                  struct stead_error **error);

/**
 * Number of results; 0 if the handle is no report.
 */
size_t stead_report_count(const struct stead_report *report);

/**
 * The name of result `i`: the specification, or the name of a kernel of one's own. They are in the order asked for,
 * those of one's own last. NULL if there is none. Lives as long as the report.
 */
const char *stead_report_name(const struct stead_report *report, size_t i);

/**
 * The result called `name`.
 *
 * Errors: STEAD_USAGE if there is none.
 */
stead_status stead_report_result(const struct stead_report *report,
                                 const char *name,
                                 struct stead_value *value,
                                 struct stead_error **error);

/**
 * Result `i`.
 *
 * Errors: STEAD_USAGE if there is none.
 */
stead_status stead_report_result_at(const struct stead_report *report,
                                    size_t i,
                                    struct stead_value *value,
                                    struct stead_error **error);

/**
 * The result called `name` as a number: stead_report_result and stead_value_double in one.
 *
 * Errors: STEAD_USAGE if there is none, or it is no number.
 */
stead_status stead_report_double(const struct stead_report *report,
                                 const char *name,
                                 double *number,
                                 struct stead_error **error);

/**
 * Draws histograms and grouped results into an SVG file, which appears whole or not at all.
 *
 * Errors: STEAD_USAGE if nothing can be drawn; STEAD_IO and its like for the file.
 */
stead_status stead_report_plot(const struct stead_report *report, const char *path, struct stead_error **error);

/**
 * Frees a report, its texts and its values. NULL is nothing to do; a handle that is no report any more is left
 * alone.
 */
void stead_report_free(struct stead_report *report);

/**
 * What a value is; STEAD_INVALID if it is none, or its report was freed.
 */
stead_type stead_value_type(struct stead_value value);

/**
 * The bool.
 *
 * Errors: STEAD_USAGE if it is something else.
 */
stead_status stead_value_bool(struct stead_value value, bool *out, struct stead_error **error);

/**
 * The count.
 *
 * Errors: STEAD_USAGE if it is something else.
 */
stead_status stead_value_int(struct stead_value value, uint64_t *out, struct stead_error **error);

/**
 * The number; a count beyond 2^53 is rounded to the nearest one.
 *
 * Errors: STEAD_USAGE if it is neither a number nor a count, such as STEAD_NULL for the mean of nothing.
 */
stead_status stead_value_double(struct stead_value value, double *out, struct stead_error **error);

/**
 * The text, which ends with a zero byte; its length is written to `len` unless that is NULL. NULL if it is
 * something else. Lives as long as the report.
 */
const char *stead_value_text(struct stead_value value, size_t *len);

/**
 * Number of members of a list or a map; 0 for any other value.
 */
size_t stead_value_length(struct stead_value value);

/**
 * Member `i` of a list or a map.
 *
 * Errors: STEAD_USAGE if there is none.
 */
stead_status stead_value_at(struct stead_value value, size_t i, struct stead_value *member, struct stead_error **error);

/**
 * The name of member `i` of a map; NULL if there is none. Lives as long as the report.
 */
const char *stead_value_key(struct stead_value value, size_t i);

/**
 * The member of a map called `key`. Cost: that of looking at each name in turn.
 *
 * Errors: STEAD_USAGE if there is none.
 */
stead_status stead_value_get(struct stead_value value,
                             const char *key,
                             struct stead_value *member,
                             struct stead_error **error);

/**
 * Number of dimensions of a list of numbers (1), of a list of lists of numbers that have one length (2), and so
 * on; 0 for any other value. The lengths, outermost first, are written to `shape`, as many as fit into `room`; it
 * may be NULL if `room` is 0.
 */
size_t stead_value_shape(struct stead_value value, size_t *shape, size_t room);

/**
 * Copies the numbers of nested lists, such as a Gram matrix, to `out`, the innermost list running fastest; null
 * becomes NaN. How many there are is the product of stead_value_shape, and is written to `n` unless that is NULL.
 *
 * Errors: STEAD_USAGE if it is something else, lists have different lengths, or there are more than `room`; then
 * nothing is copied.
 */
stead_status stead_value_doubles(struct stead_value value,
                                 double *out,
                                 size_t room,
                                 size_t *n,
                                 struct stead_error **error);

/**
 * The value as JSON. The text is the caller's, to be freed with stead_text_free.
 *
 * Errors: STEAD_USAGE if it is no value.
 */
stead_status stead_value_json(struct stead_value value, char **json, struct stead_error **error);

/**
 * For functions of a kernel of one's own: says why they are about to fail. `kind` is STEAD_DATA or another kind, and
 * what is none becomes STEAD_DATA. The message is copied. Returns the kind, so that
 * `return stead_fail(STEAD_DATA, "a negative weight");` does all.
 */
stead_status stead_fail(stead_status kind, const char *message);

/**
 * True for a missing value in a column of numbers, and for no other NaN.
 */
bool stead_is_missing(double number);

/**
 * A missing value, for results and for arrays in memory.
 */
double stead_missing(void);

/**
 * Number of records in the block; 0 if the kernel asked for bytes alone, or this is not the block of the call.
 */
size_t stead_block_rows(const struct stead_block *block);

/**
 * Number of columns that the kernel asked for as numbers, with "*" resolved.
 */
size_t stead_block_number_count(const struct stead_block *block);

/**
 * The `i`-th column that the kernel asked for as numbers: as many values as the block has rows, missing ones as
 * stead_is_missing knows them. NULL if there is none. Lives as long as the block.
 */
const double *stead_block_numbers(const struct stead_block *block, size_t i);

/**
 * The value in row `row` of the `i`-th column that the kernel asked for as text: its bytes, which do not end with a
 * zero byte, and their number in `len`. NULL if it is missing, or there is no such place. Lives as long as the block.
 */
const char *stead_block_text(const struct stead_block *block, size_t i, size_t row, size_t *len);

/**
 * The bytes of record `row`, with its line end if it is a line, and their number in `len`. NULL if there is none, or
 * the kernel did not ask for STEAD_NEEDS_RECORDS. Lives as long as the block.
 */
const char *stead_block_record(const struct stead_block *block, size_t row, size_t *len);

/**
 * Number of runs of bytes: 1, more where a filter or groups took records out, 0 if there are none or the kernel did
 * not ask for STEAD_NEEDS_BYTES.
 */
size_t stead_block_run_count(const struct stead_block *block);

/**
 * The bytes of run `i` and their number in `len`. All runs of all blocks are every byte of the files once, headers
 * too, unless something is filtered. NULL if there is none. Lives as long as the block.
 */
const char *stead_block_run(const struct stead_block *block, size_t i, size_t *len);

/**
 * Index of the file that the block is of.
 */
uint32_t stead_block_source(const struct stead_block *block);

/**
 * Where in the (decompressed) file the block's bytes begin.
 */
uint64_t stead_block_offset(const struct stead_block *block);

/**
 * The result, or the next member of the list or map that is open, is null: no answer. As its like, it is for use in
 * stead_kernel.finish only, on the thread of that call, and returns STEAD_OK or STEAD_USAGE, which may be returned
 * from there. A result that is given no value is null.
 */
stead_status stead_builder_null(struct stead_builder *result);

/**
 * As stead_builder_null, with a bool.
 */
stead_status stead_builder_bool(struct stead_builder *result, bool value);

/**
 * As stead_builder_null, with a count.
 */
stead_status stead_builder_int(struct stead_builder *result, uint64_t value);

/**
 * As stead_builder_null, with a number.
 */
stead_status stead_builder_double(struct stead_builder *result, double value);

/**
 * As stead_builder_null, with UTF-8 text, which is copied.
 */
stead_status stead_builder_text(struct stead_builder *result, const char *value);

/**
 * As stead_builder_null, with a list of `n` numbers, which are copied.
 */
stead_status stead_builder_doubles(struct stead_builder *result, const double *values, size_t n);

/**
 * As stead_builder_null, with a list of `rows` lists of `columns` numbers each, which lie row by row and are copied.
 */
stead_status stead_builder_matrix(struct stead_builder *result, const double *values, size_t rows, size_t columns);

/**
 * Begins a list; what is given next are its members, until stead_builder_end.
 */
stead_status stead_builder_list(struct stead_builder *result);

/**
 * Begins a map; what is given next are its members, each after its name (stead_builder_key), until
 * stead_builder_end.
 */
stead_status stead_builder_map(struct stead_builder *result);

/**
 * The name of the next member of the map that is open: UTF-8, copied.
 */
stead_status stead_builder_key(struct stead_builder *result, const char *key);

/**
 * Ends the list or the map that was begun last.
 */
stead_status stead_builder_end(struct stead_builder *result);

/**
 * There is no result yet: the data are read once more, and the states of that pass begin as copies of the one that
 * stead_kernel.finish leaves. So it puts there what the pass has found, for `update` to look at, and takes back to
 * nothing what is added up. Each pass sees the same records.
 */
stead_status stead_builder_again(struct stead_builder *result);

/**
 * Opens a file for read sessions. It is never created or written to. Its name is taken byte for byte, UTF-8 or not.
 * `options` may be NULL: all is chosen.
 *
 * Errors: STEAD_NOT_FOUND, STEAD_PERMISSION, STEAD_IO; STEAD_USAGE for what cannot be read at any offset, as
 * directories and pipes, and for options that make no sense.
 */
stead_status stead_file_open(const char *path,
                             const struct stead_read_options *options,
                             struct stead_file **file,
                             struct stead_error **error);

/**
 * Bytes of a file, which do not change while it is open; 0 if the handle is no file.
 */
uint64_t stead_file_size(const struct stead_file *file);

/**
 * The name of a file, or NULL if the handle is none. Lives as long as the file is open.
 */
const char *stead_file_path(const struct stead_file *file);

/**
 * Copies what was done for all sessions of a file to `counts`, which has `size` bytes: sizeof(stead_read_counts) of the
 * header that the caller was compiled with. What only a later one has is 0.
 *
 * Errors: STEAD_USAGE for a size that no version has.
 */
stead_status stead_file_counts(const struct stead_file *file,
                               struct stead_read_counts *counts,
                               size_t size,
                               struct stead_error **error);

/**
 * Closes a file. Sessions that were started over it go on. NULL is nothing to do.
 *
 * Errors: STEAD_USAGE for a file that was closed before.
 */
stead_status stead_file_close(struct stead_file *file, struct stead_error **error);

/**
 * Starts a session over `length` bytes of a file from `offset` (STEAD_TO_END: all that follow) and, unless the options
 * say otherwise, to read them ahead. Offsets of its reads are those of the file.
 *
 * Errors: STEAD_USAGE if the range does not lie within the file; STEAD_IO if no thread can be started.
 */
stead_status stead_session_start(const struct stead_file *file,
                                 uint64_t offset,
                                 uint64_t length,
                                 struct stead_session **session,
                                 struct stead_error **error);

/**
 * Another handle of a session: reads that are asked for by it, in whatever way, fail with STEAD_TIMEOUT after
 * `deadline_ms` milliseconds (0: as the options say). It is closed with stead_session_close, as the first one, and the
 * session goes on until all its handles are closed.
 *
 * Errors: STEAD_USAGE for NULL and what is no session.
 */
stead_status stead_session_within(const struct stead_session *session,
                                  uint64_t deadline_ms,
                                  struct stead_session **within,
                                  struct stead_error **error);

/**
 * The offset of a session's first byte in the file; 0 if the handle is no session.
 */
uint64_t stead_session_offset(const struct stead_session *session);

/**
 * Bytes of a session; 0 if the handle is none.
 */
uint64_t stead_session_length(const struct stead_session *session);

/**
 * What was chosen for a session, and why: lines such as "readers: 1 (a quarter of 2 cores)". The text is the caller's,
 * to be freed with stead_text_free.
 */
stead_status stead_session_explain(const struct stead_session *session, char **text, struct stead_error **error);

/**
 * As stead_session_explain, as a JSON object: for each name an object with the texts "value" and "reason".
 */
stead_status stead_session_explain_json(const struct stead_session *session, char **json, struct stead_error **error);

/**
 * Ends a session and says whether the file is still what it was. The handle is good no more, whatever the outcome.
 * Views stay valid, and reads under way are answered. NULL is nothing to do.
 *
 * Errors: STEAD_CHANGED if somebody wrote to the file; STEAD_USAGE for a session that was closed before.
 */
stead_status stead_session_close(struct stead_session *session, struct stead_error **error);

/**
 * Opens a file on all ranks of a fabric, which is made first: all ranks call this, with the same path and options.
 * Its sessions are collective: all ranks start the same ones, in the same order. Reads are not. Each byte is read
 * from the file system by one rank; ranks that cannot open the file get its bytes from those that can. With MPI,
 * stead_mpi_file_open of stead_mpi.h is simpler.
 *
 * A rank may close the file before others have: a thread goes on to answer them, until all are done.
 *
 * Errors: as stead_file_open, if no rank can open it; STEAD_USAGE on all ranks if one of them gives arguments that make
 * no sense, but for `make`, without which it can tell nobody, or another path than the others; STEAD_CHANGED if ranks see files of different lengths;
 * STEAD_PEER if a rank is gone; those of `make`.
 */
stead_status stead_file_open_ranks(stead_make_fabric_fn make,
                                   void *data,
                                   const char *path,
                                   const struct stead_read_options *options,
                                   struct stead_file **file,
                                   struct stead_error **error);

/**
 * Cuts a file into stripes and puts them into dataspaces of this host: `over` is the name of one, or a list such as
 * "nvme,disk". The layout is written when all parts are there. `options` may be NULL. `json`, unless it is NULL, gets what was
 * copied as the JSON document of `stead put --format json`; the text is the caller's, to be freed with stead_text_free.
 *
 * Errors: STEAD_USAGE for a dataspace that is not configured and a layout that is there already; STEAD_NOT_FOUND for the
 * file, or the folder of a dataspace; STEAD_NO_SPACE; STEAD_CHANGED if somebody writes to the file; STEAD_CANCELLED. Nothing
 * is left then.
 */
stead_status stead_put(const char *file,
                       const char *over,
                       const struct stead_copy_options *options,
                       char **json,
                       struct stead_error **error);

/**
 * As stead_put, on all ranks of a fabric, which is made first, into dataspaces of their nodes: `over` is a list such as
 * "nvme@node[1-4]", or a name for those of all nodes with a rank. All ranks call this, with the same file, which all of them
 * see, and the same options but for folders of dataspaces. With MPI, stead_mpi_put of stead_mpi.h is simpler.
 *
 * Errors: those of stead_put, the same on all ranks; STEAD_USAGE on all ranks if one of them gives arguments that make no
 * sense, but for `make`, without which it can tell nobody, if they ask for different things, and for a node without a rank;
 * STEAD_PEER if a rank is gone; those of `make`. Where a rank goes when all parts have their names, they stay, as the layout may
 * be there.
 */
stead_status stead_put_ranks(stead_make_fabric_fn make,
                             void *data,
                             const char *file,
                             const char *over,
                             const struct stead_copy_options *options,
                             char **json,
                             struct stead_error **error);

/**
 * Brings a file back whose parts are all on this host: to where the layout is, or to `options`.target. Checksums are compared.
 * `options` may be NULL. `json` as in stead_put.
 *
 * Errors: STEAD_USAGE for a file that is there already; STEAD_NOT_FOUND for a part that is not there; STEAD_FORMAT for one of
 * another length or checksum, and for what is no layout; STEAD_NO_SPACE; STEAD_CANCELLED. No file is left then.
 */
stead_status stead_get(const char *layout,
                       const struct stead_copy_options *options,
                       char **json,
                       struct stead_error **error);

/**
 * As stead_get, on all ranks of a fabric, which is made first: each node with parts has a rank, and all see where the file goes.
 * The first rank reads the layout. With MPI, stead_mpi_get of stead_mpi.h is simpler.
 *
 * Errors: those of stead_get, the same on all ranks, and those that stead_put_ranks has beside stead_put.
 */
stead_status stead_get_ranks(stead_make_fabric_fn make,
                             void *data,
                             const char *layout,
                             const struct stead_copy_options *options,
                             char **json,
                             struct stead_error **error);

/**
 * What a layout is, as the JSON document of `stead describe LAYOUT --format json`. The text is the caller's, to be freed with
 * stead_text_free.
 *
 * Errors: STEAD_NOT_FOUND, STEAD_FORMAT for what is no layout, STEAD_LIMIT.
 */
stead_status stead_layout_describe(const char *layout,
                                   char **json,
                                   struct stead_error **error);

/**
 * Opens `n` files, globs, directories or layouts as one dataset on all ranks of a fabric, which is made first: all ranks call
 * this, with the same names, and run over it together (stead_run_ranks, on the same ranks). Of layouts each rank reads what is on its node,
 * and gets from others what it needs of the rest. "out.%r.bin" names files that each rank has written on its node. A rank
 * may free the dataset before others have: a thread goes on to answer them. With MPI, stead_mpi_open of stead_mpi.h is
 * simpler.
 *
 * Errors: as stead_open, the same on all ranks; STEAD_NOT_FOUND for parts that are missing and for nodes without a rank;
 * STEAD_USAGE on all ranks if one of them gives arguments that make no sense, but for `make`; STEAD_PEER if a rank is gone;
 * those of `make`.
 */
stead_status stead_open_ranks(stead_make_fabric_fn make,
                              void *data,
                              const char *const *paths,
                              size_t n,
                              const struct stead_options *options,
                              struct stead_dataset **dataset,
                              struct stead_error **error);

/**
 * Says whether the bytes of a view are what the file had: if it became shorter while they were looked at, or its
 * device failed, they may have been zeros. Ask after having looked, where that may happen.
 *
 * Errors: STEAD_CHANGED, STEAD_IO; STEAD_USAGE for a view that was released.
 */
stead_status stead_view_check(const struct stead_view *view, struct stead_error **error);

/**
 * Where the bytes of a view lie: STEAD_IN_CACHE and so on; 0 for no view, and for a buffer of the caller.
 */
stead_place stead_view_place(const struct stead_view *view);

/**
 * Copies the bytes of a view that lie in a block, which is then free for other bytes: for views that are kept. Any other
 * view is left as it is.
 *
 * Errors: STEAD_USAGE for a view that was released; STEAD_LIMIT if there is no memory for the copy.
 */
stead_status stead_view_own(struct stead_view *view,
                            struct stead_error **error);

/**
 * Releases a view and makes it all zero. NULL and no view are nothing to do; one that was released is left alone.
 */
void stead_view_release(struct stead_view *view);

/**
 * Asks for `length` bytes at `offset` of the file, which come as a view to `done` with `user`: by this thread before
 * the call returns if they are there already, else by a thread that reads. Within such a function, `done` is called
 * after it has returned, so that a function may read on without an end. What is wrong with the range is part of the
 * answer.
 *
 * Errors: STEAD_USAGE for NULL and what is no session; `done` is not called then.
 */
stead_status stead_read(const struct stead_session *session,
                        uint64_t offset,
                        size_t length,
                        stead_read_fn done,
                        void *user,
                        struct stead_error **error);

/**
 * Reads `length` bytes at `offset` of the file and waits for them. The view is to be released with
 * stead_view_release; it is no view after a failure.
 *
 * Errors: STEAD_USAGE if they do not lie within the session, or would have to be waited for in a function that is called
 * with an answer; STEAD_CHANGED if the file became shorter; STEAD_IO; STEAD_TIMEOUT at the deadline of the options, or of
 * stead_session_within.
 */
stead_status stead_read_view(const struct stead_session *session,
                             uint64_t offset,
                             size_t length,
                             struct stead_view *view,
                             struct stead_error **error);

/**
 * As stead_read_view, into a buffer of the caller.
 */
stead_status stead_read_now(const struct stead_session *session,
                            uint64_t offset,
                            void *buffer,
                            size_t length,
                            struct stead_error **error);

/**
 * Asks for `length` bytes at `offset` of the file. What is wrong with the range is part of the answer.
 *
 * Errors: STEAD_USAGE for NULL and what is no session.
 */
stead_status stead_read_begin(const struct stead_session *session,
                              uint64_t offset,
                              size_t length,
                              struct stead_pending **pending,
                              struct stead_error **error);

/**
 * As stead_read_begin, into a buffer of the caller, which must be left alone until the answer was taken or the read was
 * freed. The view of the answer is the buffer.
 */
stead_status stead_read_into(const struct stead_session *session,
                             uint64_t offset,
                             void *buffer,
                             size_t length,
                             struct stead_pending **pending,
                             struct stead_error **error);

/**
 * Asks for `count` pieces of `length` bytes, the first at `offset` of the file, the others `stride` bytes apart. The
 * view of the answer has them one after the other. It is an error of kind STEAD_USAGE if the pieces overlap.
 *
 * Errors: STEAD_USAGE for NULL and what is no session.
 */
stead_status stead_read_strided(const struct stead_session *session,
                                uint64_t offset,
                                size_t length,
                                size_t stride,
                                size_t count,
                                struct stead_pending **pending,
                                struct stead_error **error);

/**
 * Asks for `n` ranges at once: `pendings` has room for a read of each, in their order.
 *
 * Errors: STEAD_USAGE for NULL and what is no session; nothing is asked for then.
 */
stead_status stead_read_many(const struct stead_session *session,
                             const struct stead_range *ranges,
                             size_t n,
                             struct stead_pending **pendings,
                             struct stead_error **error);

/**
 * Waits `timeout_ms` milliseconds for the answer: not at all if that is 0, without an end if it is negative. True if it
 * is there, or went elsewhere. May be called again and again. In a function that is called with an answer, by a thread that
 * reads, it is false at once if there is none yet, and stead_last_message says why.
 */
bool stead_pending_wait(struct stead_pending *pending,
                        int64_t timeout_ms);

/**
 * Waits for the answer, takes it, and frees the read. The view is to be released with stead_view_release; it is no view
 * after a failure.
 *
 * Errors: those of stead_read_view; STEAD_CANCELLED if another thread frees the read meanwhile. STEAD_USAGE if there is no
 * answer yet in a function that is called with another one; the read is freed all the same.
 */
stead_status stead_pending_take(struct stead_pending *pending,
                                struct stead_view *view,
                                struct stead_error **error);

/**
 * Has the answer given to a function, as stead_read does, but within another function too: at once if it is there. The
 * read is still to be freed, at any time: before the function was called, it is not called any more; while another thread
 * is calling it, freeing waits for its return.
 *
 * Errors: STEAD_USAGE for NULL, and if the answer goes elsewhere already.
 */
stead_status stead_pending_then(struct stead_pending *pending,
                                stead_read_fn done,
                                void *user,
                                struct stead_error **error);

/**
 * Has the answer put into a queue, with `user` to tell it by. The read is still to be freed, at any time: if the answer
 * is not there yet, it does not come to the queue any more.
 *
 * Errors: STEAD_USAGE for handles that are none, and if the answer goes elsewhere already.
 */
stead_status stead_pending_queue(struct stead_pending *pending,
                                 struct stead_queue *queue,
                                 void *user,
                                 struct stead_error **error);

/**
 * Frees a read, and gives it up if nobody has its answer yet: nothing is written to its buffer afterwards. NULL is
 * nothing to do; a handle that is no read any more is left alone.
 */
void stead_pending_free(struct stead_pending *pending);

/**
 * Makes a queue, to be freed with stead_queue_free.
 *
 * Errors: STEAD_IO if the system gives no more file descriptors.
 */
stead_status stead_queue_new(struct stead_queue **queue, struct stead_error **error);

/**
 * A file descriptor (an eventfd) that is readable while the queue has reads that are done: for poll, epoll, and any
 * event loop. It is the queue's, and closed with it: neither read nor close it. -1 if the handle is no queue.
 */
int stead_queue_fd(const struct stead_queue *queue);

/**
 * Asks for `length` bytes at `offset`; the answer goes to the queue, with `user` to tell it by. What is wrong with the
 * range is part of the answer.
 *
 * Errors: STEAD_USAGE for handles that are none; nothing goes to the queue then.
 */
stead_status stead_queue_read(struct stead_queue *queue,
                              const struct stead_session *session,
                              uint64_t offset,
                              size_t length,
                              void *user,
                              struct stead_error **error);

/**
 * Takes the oldest read that is done. Waits `timeout_ms` milliseconds for one if there is none: not at all if that is
 * 0, without an end if it is negative. False if there was none in time, or none is under way, so that
 * `while (stead_queue_next(queue, -1, &done))` sees all of them; `done` is left as it is then. In a function that is called
 * with an answer, by a thread that reads, it does not wait: it is false, and stead_last_message says why.
 *
 * Where blocks are in memory, answers that nobody takes are within the budget of their session, and the others come when
 * these are taken. Of a queue that has nothing to take, the session brings the first read in any case.
 */
bool stead_queue_next(struct stead_queue *queue,
                      int64_t timeout_ms,
                      struct stead_completion *done);

/**
 * Number of reads that will come out of the queue: those under way and those that are done. 0 if the handle is no
 * queue.
 */
uint64_t stead_queue_length(const struct stead_queue *queue);

/**
 * Frees a queue and what is in it. Answers of reads under way go nowhere. NULL is nothing to do; a handle that is no
 * queue any more is left alone.
 */
void stead_queue_free(struct stead_queue *queue);

/**
 * Opens a Tipsy snapshot. Byte order, length of the header and precision are found by the length of the file, which is
 * never written to. `options` may be NULL; what is read is what tasks ask for. Where all ranks of a job load one file, see
 * stead_tipsy_open_ranks, and stead_mpi_tipsy_open of stead_mpi.h.
 *
 * Errors: those of stead_file_open; STEAD_FORMAT for a file that is no snapshot, or not a whole one.
 */
stead_status stead_tipsy_open(const char *path,
                              const struct stead_read_options *options,
                              struct stead_tipsy **snapshot,
                              struct stead_error **error);

/**
 * Opens a snapshot on all ranks of a fabric, as stead_file_open_ranks opens a file: all ranks call this, with the same path
 * and options. Loading is of no concern to other ranks, but each byte is read from the file system by one of them.
 *
 * Errors: those of stead_file_open_ranks; STEAD_FORMAT, on all ranks, as for stead_tipsy_open.
 */
stead_status stead_tipsy_open_ranks(stead_make_fabric_fn make,
                                    void *data,
                                    const char *path,
                                    const struct stead_read_options *options,
                                    struct stead_tipsy **snapshot,
                                    struct stead_error **error);

/**
 * Copies what a snapshot is to `header`, which has `size` bytes: sizeof(stead_tipsy_header) of the header that the caller
 * was compiled with. What only a later one has is 0.
 *
 * Errors: STEAD_USAGE for a size that no version has.
 */
stead_status stead_tipsy_describe(const struct stead_tipsy *snapshot,
                                  struct stead_tipsy_header *header,
                                  size_t size,
                                  struct stead_error **error);

/**
 * Number of fields of a record of a species, 0 if the handle is no snapshot or there is no such species. They are written
 * to `fields` in the order of the file, as many as fit into `room`; it may be NULL if `room` is 0.
 */
size_t stead_tipsy_fields(const struct stead_tipsy *snapshot,
                          stead_species species,
                          struct stead_tipsy_field *fields,
                          size_t room);

/**
 * Which records of a species are those of task `task` of `tasks`, numbered from 0. Together the tasks have each once, in
 * order; there may be more tasks than records.
 *
 * Errors: STEAD_USAGE if there is no such species or task.
 */
stead_status stead_tipsy_share(const struct stead_tipsy *snapshot,
                               stead_species species,
                               size_t task,
                               size_t tasks,
                               struct stead_tipsy_part *part,
                               struct stead_error **error);

/**
 * Loads columns of the particles of task `task` of `tasks` into the caller's memory, which has room for as many values as
 * stead_tipsy_share says, and waits for them. Beside it, it takes a few MiB, however many particles there are. Not all that
 * was asked for may be there after a failure.
 *
 * Errors: STEAD_USAGE for a species, task or column that there is not, and for an array of STEAD_F32 where the file has
 * STEAD_F64; those of stead_read_view, STEAD_CHANGED if the file became shorter.
 */
stead_status stead_tipsy_load(const struct stead_tipsy *snapshot,
                              stead_species species,
                              size_t task,
                              size_t tasks,
                              const struct stead_tipsy_column *columns,
                              size_t n,
                              struct stead_error **error);

/**
 * Puts the values of whole records into the caller's memory: `bytes` of them, as they lie in the file, such as a read of the
 * session brings. The memory has room for bytes / record_bytes values of each column, and must not overlap the records, nor
 * a column another one.
 *
 * Errors: STEAD_USAGE if a record is not whole; else as stead_tipsy_load.
 */
stead_status stead_tipsy_decode(const struct stead_tipsy *snapshot,
                                stead_species species,
                                const void *records,
                                size_t bytes,
                                const struct stead_tipsy_column *columns,
                                size_t n,
                                struct stead_error **error);

/**
 * The session of a snapshot, over the whole file, for reads that do not wait: stead_tipsy_share says where the records of a
 * task lie, and stead_tipsy_decode makes numbers of them. It is to be closed with stead_session_close, before or after the
 * snapshot.
 */
stead_status stead_tipsy_session(const struct stead_tipsy *snapshot,
                                 struct stead_session **session,
                                 struct stead_error **error);

/**
 * Closes a snapshot and says whether the file is still what it was. The handle is good no more, whatever the outcome. NULL is
 * nothing to do.
 *
 * Errors: STEAD_CHANGED if somebody wrote to the file; STEAD_USAGE for a snapshot that was closed before.
 */
stead_status stead_tipsy_close(struct stead_tipsy *snapshot,
                               struct stead_error **error);

/**
 * Measures this machine for those who choose where to compute, in about so many `seconds` (0 for 20), and writes the profile:
 * how fast cores run kernels, and how fast what is behind each of the `n` folders or files of `tiers` is read. A folder gets
 * a file for it, which is removed; files are only read. `output` is where to write, NULL for where runs look for it:
 * STEAD_PROFILE, or stead/profile.toml in the user's configuration. `profile` may be NULL; else it gets the text, to be freed
 * with stead_text_free. `cancel` may be NULL.
 *
 * Errors: STEAD_USAGE for seconds that make no sense; STEAD_NOT_FOUND for a tier that is not there; STEAD_PERMISSION,
 * STEAD_NO_SPACE, STEAD_IO; STEAD_CANCELLED.
 */
stead_status stead_calibrate(const char *const *tiers,
                             size_t n,
                             double seconds,
                             const char *output,
                             struct stead_cancel *cancel,
                             char **profile,
                             struct stead_error **error);

/**
 * Measures the machines of all ranks of a fabric, which is made first, and the links between them: all ranks call this, with
 * the same arguments. The first rank writes the profile, and all get its text. As stead_calibrate; a tier is to be there on
 * one of the hosts. With MPI, stead_mpi_calibrate of stead_mpi.h is simpler.
 *
 * Errors: those of stead_calibrate, the same on all ranks; STEAD_PEER if a rank is gone; those of `make`.
 */
stead_status stead_calibrate_ranks(stead_make_fabric_fn make,
                                   void *data,
                                   const char *const *tiers,
                                   size_t n,
                                   double seconds,
                                   const char *output,
                                   struct stead_cancel *cancel,
                                   char **profile,
                                   struct stead_error **error);

/**
 * Makes storage ranks of some ranks of a fabric, which is made first. Collective: all ranks call it. With MPI,
 * stead_MPI_Storage_init of stead_mpi_io.h is simpler.
 *
 * Errors: STEAD_USAGE on all ranks if there is no storage rank, a host has no rank, ranks are given different hosts, or
 * one of them gives arguments that make no sense, but for `make`, without which it can tell nobody; STEAD_PEER if a rank
 * is gone; those of `make`.
 */
stead_status stead_offload_open(stead_make_fabric_fn make,
                                void *data,
                                const struct stead_offload_options *options,
                                struct stead_offload **offload,
                                struct stead_error **error);

/**
 * True if this rank is a storage rank; false for what is no handle.
 */
bool stead_offload_is_storage(const struct stead_offload *offload);

/**
 * Number of storage ranks, or of compute ranks; 0 for what is no handle.
 */
size_t stead_offload_ranks(const struct stead_offload *offload, bool storage);

/**
 * Has a storage rank work for the compute ranks, until all of them have freed their handles or are gone. Once.
 *
 * Errors: STEAD_USAGE on a compute rank, for a second call, and if there is no compute rank; STEAD_PEER if the first
 * storage rank is gone. What asks fail with is told to who has asked.
 */
stead_status stead_offload_serve(const struct stead_offload *offload, struct stead_error **error);

/**
 * Runs `request` over the data of `job` on the storage ranks, and waits for the report; files that kernels write as a
 * whole are written here. With NULL for `offload` this rank runs it itself: programs need not know whether there are
 * storage ranks. Threads of a compute rank may ask at the same time.
 *
 * Errors: those of stead_run, with the rank and host of a storage rank where they are its own; STEAD_USAGE on a storage
 * rank, for kernels of one's own (give names of operations), for kernels that write in the order of the data
 * (normalize, grep with a file) on storage ranks, and for names that these do not know; STEAD_PEER if a storage rank is
 * gone.
 */
stead_status stead_offload_run(const struct stead_offload *offload,
                               const struct stead_offload_job *job,
                               const struct stead_request *request,
                               struct stead_report **report,
                               struct stead_error **error);

/**
 * Says good-bye, if this is a compute rank, whose requests that are under way are cancelled, and frees the handle. NULL
 * is nothing to do; a handle that is none any more is left alone.
 */
void stead_offload_free(struct stead_offload *offload);

/**
 * Makes a region of `size` bytes, all zero: a file in memory, which is mapped. It has all its memory from the beginning on, and stays
 * when the program has ended, until it is removed. `name` is a path in the dataspace "memory".
 *
 * Errors: STEAD_USAGE if there is one of the name, without bytes, for names that are none; STEAD_NO_SPACE if there is not as much
 * memory; STEAD_PERMISSION if the folder of regions is not private to this user.
 */
stead_status stead_region_create(const char *name,
                                 uint64_t size,
                                 struct stead_region **region,
                                 struct stead_error **error);

/**
 * Maps a region that is there: one that was made, or a file that a transfer brought to "memory://NAME".
 *
 * Errors: STEAD_NOT_FOUND; STEAD_USAGE for what is no file; STEAD_NO_SPACE if it has holes that there is no memory for.
 */
stead_status stead_region_open(const char *name, struct stead_region **region, struct stead_error **error);

/**
 * Where its bytes are, to be read and written until it is closed; NULL if it has none, or is no region. They begin with a page.
 */
void *stead_region_data(const struct stead_region *region);

/**
 * Its bytes; 0 if it is no region.
 */
uint64_t stead_region_size(const struct stead_region *region);

/**
 * Says that its bytes were changed, which the system does not notice: a transfer "sync" goes by the time of change. Closing it says so,
 * too.
 *
 * Errors: STEAD_IO.
 */
stead_status stead_region_touch(const struct stead_region *region,
                                struct stead_error **error);

/**
 * Lets go of a region, which stays. Its address is of no use any more. NULL is nothing to do; a handle that is no region any more
 * is left alone.
 */
void stead_region_close(struct stead_region *region);

/**
 * Removes the region `name`. Its memory goes when nobody has it mapped any more.
 *
 * Errors: STEAD_NOT_FOUND if there is none; STEAD_USAGE for names that are none.
 */
stead_status stead_region_remove(const char *name, struct stead_error **error);

/**
 * All regions of this user as JSON: a list of objects with `name` and `size`, in bytes. To be freed with stead_text_free.
 *
 * Errors: STEAD_PERMISSION if the folder of regions is not private to this user.
 */
stead_status stead_region_list(char **json,
                               struct stead_error **error);

/**
 * Makes a request that names no files yet. `action` is "copy", "move" (the sources go once the target has them), "sync" (the
 * target becomes equal to the source) or "remove".
 *
 * Errors: STEAD_USAGE for another action.
 */
stead_status stead_stage_request_new(const char *action,
                                     struct stead_stage_request **request,
                                     struct stead_error **error);

/**
 * Adds a source: a path, a name in a dataspace such as "nvme0://run1/" or the URL of a bucket, that may be a pattern of a shell ("?", "*", "**").
 * With a "/" at its end, what lies in the folder is meant. It is looked at when the request is submitted.
 *
 * Errors: STEAD_USAGE for NULL, for text that names no file, and, in a dataspace, for variables that are not set; those of a path are looked for when it
 * is submitted.
 */
stead_status stead_stage_request_source(struct stead_stage_request *request,
                                        const char *source,
                                        struct stead_error **error);

/**
 * Where to: a path, a name in a dataspace or the URL of a bucket, a folder if it ends with "/". NULL takes it back: what is removed has no target.
 *
 * Errors: STEAD_USAGE for text that names no file, and, in a dataspace, for variables that are not set.
 */
stead_status stead_stage_request_target(struct stead_stage_request *request,
                                        const char *target,
                                        struct stead_error **error);

/**
 * Sets one option: "exists" (what becomes of names that the target has: refuse, replace, skip, newer), "delete" (a sync removes
 * what the source has not), "checksum" (a sync compares files of one size by their bytes, which are read on both sides, and not by
 * their time), "verify" (read back and compared), "skip-special" (pipes, sockets and devices are left out),
 * "durable" (files are on the device before they get their names; yes unless told otherwise), "gentle" (gives way to others),
 * each yes or no; "max-delete" (if a sync would remove more names, nothing is done, which is STEAD_LIMIT), "limit" (bytes a
 * second, with units, or none), "priority" (of those that wait), "retries" (of a file whose
 * error may pass). "exclude" and "include" add a pattern of names below the sources each: of what is left out, and of what alone is taken.
 * "min-size" and "max-size" (with units), "min-age" and "max-age" (such as 30min or 2d, before the transfer begins) take only files and
 * links that have at least, or at most, so many bytes, and were changed so long ago. "file" adds a name below the one source, a folder, by its way from there: these alone are taken, with the folders that they lie in.
 *
 * Errors: STEAD_USAGE for a name or a value that there is not.
 */
stead_status stead_stage_request_set(struct stead_stage_request *request,
                                     const char *name,
                                     const char *value,
                                     struct stead_error **error);

/**
 * Frees a request; transfers that were begun with it go on. NULL is nothing to do; a handle that is no request any more is left
 * alone.
 */
void stead_stage_request_free(struct stead_stage_request *request);

/**
 * Opens the journal of transfers in the folder `state`, which is made if it is not there; NULL is that of this user on this host,
 * which `stead stage` has, too. `dataspaces` are folders such as "nvme0=/mnt/nvme/me", or buckets such as "old=s3://bucket", before those that are configured; each
 * transfer copies with so many threads, 0 being as many as devices and processors here are likely to want. Names of dataspaces that none of these
 * has are asked of the daemon of the node when they are needed, if one runs: administrators may have set them.
 *
 * Errors: STEAD_USAGE for dataspaces that are none; STEAD_FORMAT for a file that is no journal; STEAD_PERMISSION, STEAD_IO.
 */
stead_status stead_stager_open(const char *state,
                               const char *const *dataspaces,
                               size_t dataspaces_count,
                               size_t threads,
                               struct stead_stager **stager,
                               struct stead_error **error);

/**
 * Ends a stager. Its transfers that are under way are stopped, such that they can be resumed, and have ended when this returns;
 * their handles are still to be freed. NULL is nothing to do.
 *
 * Errors: STEAD_USAGE for a handle that is no stager; STEAD_TIMEOUT if a transfer does not stop within a minute, as its device
 * hangs: the stager is closed then, too.
 */
stead_status stead_stager_close(struct stead_stager *stager,
                                struct stead_error **error);

/**
 * Takes a request into the journal and has threads of this process begin it; or go on with a transfer of the journal that would
 * do the same, has not come to its end, and that nobody does. The transfer is a new handle, to be freed with stead_stage_free.
 *
 * Errors: STEAD_USAGE for a request that makes no sense; STEAD_LIMIT if 64 transfers of the stager are under way; those of the
 * journal. What is wrong with the files comes with the end: see stead_stage_wait.
 */
stead_status stead_stage_submit(struct stead_stager *stager,
                                const struct stead_stage_request *request,
                                struct stead_transfer **transfer,
                                struct stead_error **error);

/**
 * Goes on with a transfer of the journal that was stopped or interrupted, or of which something failed.
 *
 * Errors: STEAD_USAGE if there is none of this number, it is finished or cancelled, or under way in this process; STEAD_LIMIT as
 * stead_stage_submit. That it is under way in another process comes with the end, as STEAD_USAGE.
 */
stead_status stead_stage_resume(struct stead_stager *stager,
                                int64_t id,
                                struct stead_transfer **transfer,
                                struct stead_error **error);

/**
 * The number of a transfer in the journal; 0 if the handle is none.
 */
int64_t stead_stage_id(const struct stead_transfer *transfer);

/**
 * True once a transfer has ended, in whatever way: stead_stage_wait says at once in which. False for what is no transfer.
 */
bool stead_stage_test(const struct stead_transfer *transfer);

/**
 * Waits until a transfer has ended, for `timeout_ms` milliseconds: not at all if that is 0, without an end if it is negative.
 * STEAD_OK if all of it was done. Every call says the same once it has ended.
 *
 * Errors: STEAD_TIMEOUT if it has not ended by then: it goes on. Otherwise what it ended with, which is never STEAD_TIMEOUT: STEAD_USAGE
 * for what the target has already, STEAD_NOT_FOUND for sources that are not there; STEAD_NO_SPACE; STEAD_CANCELLED if it was stopped, or
 * given up by somebody; STEAD_IO if some names could not be done, which stead_stage_status tells, and all others were, and if a store has
 * not answered; STEAD_PERMISSION and its like.
 */
stead_status stead_stage_wait(const struct stead_transfer *transfer,
                              int64_t timeout_ms,
                              struct stead_error **error);

/**
 * Copies how far a transfer is to `progress`, which has `size` bytes: sizeof(stead_stage_progress) of the header that the caller
 * was compiled with. What only a later one has is 0. It changes about ten times a second.
 *
 * Errors: STEAD_USAGE for what is no transfer, and for a size that no version has.
 */
stead_status stead_stage_eta(const struct stead_transfer *transfer,
                             struct stead_stage_progress *progress,
                             size_t size,
                             struct stead_error **error);

/**
 * Asks a transfer to stop, such that it can be resumed (stead_stage_resume, `stead stage --resume`). It has stopped when it has
 * ended. One that has ended is left as it is.
 *
 * Errors: STEAD_USAGE for what is no transfer.
 */
stead_status stead_stage_cancel(struct stead_transfer *transfer,
                                struct stead_error **error);

/**
 * Frees a transfer. One that is under way is stopped, such that it can be resumed, and has ended when this returns, unless its
 * device hangs for more than a minute. NULL is nothing to do; a handle that is no transfer any more is left alone.
 */
void stead_stage_free(struct stead_transfer *transfer);

/**
 * Gives a transfer of the journal up: what is whole stays, and everything else of it is removed. One that is under way, in this process or
 * another one, is stopped there first, and its stead_stage_wait says STEAD_CANCELLED; of one whose process was killed this call removes what there is.
 *
 * Errors: STEAD_USAGE if there is none of this number, it is over, or is so before it can be stopped; STEAD_TIMEOUT if it does not
 * stop within a minute, as its device hangs: it is given up once that answers.
 */
stead_status stead_stage_give_up(struct stead_stager *stager,
                                 int64_t id,
                                 struct stead_error **error);

/**
 * Waits until nothing more happens with a transfer of the journal, whichever process does it, for `timeout_ms` milliseconds: not at
 * all if that is 0, without an end if it is negative. STEAD_OK if all of it was done.
 *
 * Errors: STEAD_TIMEOUT if it goes on, or somebody keeps the journal locked; STEAD_USAGE if there is none of this number, or it waits and
 * no process does it; STEAD_CANCELLED if it was given up; STEAD_IO if it was interrupted, as its process has ended, or if some names could
 * not be done, which stead_stage_status tells; otherwise what it ended with, as stead_stage_wait.
 */
stead_status stead_stage_wait_for(const struct stead_stager *stager,
                                  int64_t id,
                                  int64_t timeout_ms,
                                  struct stead_error **error);

/**
 * What the journal knows of a transfer, as the JSON document of `stead stage --format json`. The text is the caller's, to be freed
 * with stead_text_free.
 *
 * Errors: STEAD_USAGE if there is none of this number; those of the journal.
 */
stead_status stead_stage_status(const struct stead_stager *stager,
                                int64_t id,
                                char **json,
                                struct stead_error **error);

/**
 * The transfers of the journal, the latest first, as a JSON list of what stead_stage_status says: those that are over only if
 * `all`; 10000 at most. The text is the caller's, to be freed with stead_text_free.
 *
 * Errors: those of the journal.
 */
stead_status stead_stage_list(const struct stead_stager *stager,
                              bool all,
                              char **json,
                              struct stead_error **error);

/**
 * What a request would do and how long it would take, as the JSON document of `stead stage --dry-run --format json`; nothing is
 * done. `cancel` may be NULL; else it stops looking through the sources. The text is the caller's, to be freed with
 * stead_text_free.
 *
 * Errors: those with which the request would fail before it starts, as in stead_stage_submit and stead_stage_wait.
 */
stead_status stead_stage_preview(const struct stead_stager *stager,
                                 const struct stead_stage_request *request,
                                 struct stead_cancel *cancel,
                                 char **json,
                                 struct stead_error **error);

/**
 * How the target of a request "sync" differs from its source, as the JSON document of `stead stage --check --format json`; nothing is
 * changed. Files of the same size are compared by their bytes, which are read. `cancel` may be NULL; else it stops that. The text is the
 * caller's, to be freed with stead_text_free.
 *
 * Errors: STEAD_USAGE for another action; those with which the sync would fail before it starts, but for room; STEAD_PERMISSION and
 * STEAD_IO for files that cannot be read. That something differs is none.
 */
stead_status stead_stage_check(const struct stead_stager *stager,
                               const struct stead_stage_request *request,
                               struct stead_cancel *cancel,
                               char **json,
                               struct stead_error **error);

/**
 * The dataspaces of a stager as the JSON list of `stead df --format json`: their room, and how fast transfers were. One that is not
 * to be had says why. The text is the caller's, to be freed with stead_text_free.
 *
 * Errors: those of the journal.
 */
stead_status stead_df(const struct stead_stager *stager,
                      char **json,
                      struct stead_error **error);

/**
 * Tells `each` of what lies at `at`, a location as stead_stage_request_source has it: in a folder, a dataspace or a bucket, and with `all` of what lies below it, too; else of the
 * file itself, or of all that a pattern stands for. Names of a folder come in order, and few are in memory; those of a bucket in the order
 * of the store. Names of another node of the pool, NODE:/path, are asked for by way of the daemon. `stager` has the dataspaces. `cancel`
 * may be NULL; else it stops it, too.
 *
 * Errors: STEAD_NOT_FOUND; STEAD_USAGE for locations that make no sense and nodes that are not reached; STEAD_PERMISSION; STEAD_CANCELLED if
 * `each` stopped it; STEAD_IO, STEAD_PEER and STEAD_TIMEOUT for what is met on the way.
 */
stead_status stead_ls(const struct stead_stager *stager,
                      const char *at,
                      bool all,
                      stead_entry_fn each,
                      void *user,
                      struct stead_cancel *cancel,
                      struct stead_error **error);

/**
 * Connects to the daemon that listens on the socket `path`; NULL is the user's own one (`$STEAD_SOCKET`, or
 * `$XDG_RUNTIME_DIR/stead/steadd.sock`), or that of the system.
 *
 * Errors: STEAD_NOT_FOUND if there is none; STEAD_PERMISSION if another user listens there; STEAD_FORMAT if it is of another version;
 * STEAD_TIMEOUT if it does not answer.
 */
stead_status stead_daemon_connect(const char *path,
                                  struct stead_daemon **daemon,
                                  struct stead_error **error);

/**
 * Connects to the daemon of another node of the pool, by way of the one of this node that listens on the socket `path`, or that
 * stead_daemon_connect finds if that is NULL. A transfer is asked of the node where its target is; names without a node are those
 * of this one.
 *
 * Errors: as stead_daemon_connect; STEAD_NOT_FOUND if the pool has no such node; STEAD_USAGE if the daemon here is in no pool;
 * STEAD_PEER if the one there is gone; STEAD_PERMISSION if it does not serve this user.
 */
stead_status stead_daemon_connect_on(const char *path,
                                     const char *node,
                                     struct stead_daemon **daemon,
                                     struct stead_error **error);

/**
 * Ends the connections. What the daemon was given goes on. NULL is nothing to do; a handle that is no daemon any more is left alone.
 */
void stead_daemon_free(struct stead_daemon *daemon);

/**
 * Gives the daemon a transfer, to be done once the `after_count` transfers of `after` are finished; if one of them is not, it is
 * cancelled. It is in the journal of the daemon when this returns, and is done whether or not the program waits. `id` is its number.
 * Paths are those of this process; dataspaces are those that the daemon finds configured for this user.
 *
 * Errors: STEAD_USAGE for a request that makes no sense, and if one of `after` is not there or will never be finished; STEAD_LIMIT
 * if too many wait already; STEAD_PEER if the daemon has ended, which may have taken it.
 */
stead_status stead_daemon_submit(struct stead_daemon *daemon,
                                 const struct stead_stage_request *request,
                                 const int64_t *after,
                                 size_t after_count,
                                 int64_t *id,
                                 struct stead_error **error);

/**
 * Waits until a transfer has ended, for `timeout_ms` milliseconds: not at all if that is 0, without an end if it is negative; also
 * over the end of a daemon that is started again within 20 seconds. STEAD_OK if all of it was done. Every call says the same once it
 * has ended.
 *
 * Errors: STEAD_TIMEOUT if it has not ended by then: it goes on; or if the daemon does not answer. STEAD_CANCELLED if it was given up, or
 * one before it was not finished; what it has failed with, which is never STEAD_TIMEOUT; STEAD_IO if it was interrupted, if some names
 * could not be done, which stead_daemon_status tells, or if a store has not answered; STEAD_USAGE if there is none of this number;
 * STEAD_PEER if the daemon has ended.
 */
stead_status stead_daemon_wait(const struct stead_daemon *daemon,
                               int64_t id,
                               int64_t timeout_ms,
                               struct stead_error **error);

/**
 * Copies how far a transfer is to `progress`, which has `size` bytes, as stead_stage_eta does. Of one that waits for its turn, what
 * is left counts those before it.
 *
 * Errors: STEAD_USAGE if there is none of this number, and for a size that no version has; STEAD_PEER if the daemon has ended.
 */
stead_status stead_daemon_eta(const struct stead_daemon *daemon,
                              int64_t id,
                              struct stead_stage_progress *progress,
                              size_t size,
                              struct stead_error **error);

/**
 * Stops a transfer and gives it up, and what waits for it: what is whole stays, everything else of it is removed.
 *
 * Errors: STEAD_USAGE if there is none of this number, or it is over; STEAD_TIMEOUT if it does not stop within a minute, as its
 * device hangs; STEAD_PEER if the daemon has ended.
 */
stead_status stead_daemon_cancel(struct stead_daemon *daemon,
                                 int64_t id,
                                 struct stead_error **error);

/**
 * Has a transfer done again that was interrupted or has failed.
 *
 * Errors: STEAD_USAGE if there is none of this number, or it is finished or cancelled; STEAD_PEER if the daemon has ended.
 */
stead_status stead_daemon_resume(struct stead_daemon *daemon,
                                 int64_t id,
                                 struct stead_error **error);

/**
 * What the daemon knows of a transfer, as JSON: "status" is the document of stead_stage_status, "progress" how far it is while it
 * is under way, or null. The text is the caller's, to be freed with stead_text_free.
 *
 * Errors: STEAD_USAGE if there is none of this number; STEAD_PEER if the daemon has ended.
 */
stead_status stead_daemon_status(const struct stead_daemon *daemon,
                                 int64_t id,
                                 char **json,
                                 struct stead_error **error);

/**
 * The transfers of this user, the latest first, as a JSON list of what stead_daemon_status says, with the first sources of each:
 * those that are over only if `all`; 10000 at most. The text is the caller's, to be freed with stead_text_free.
 *
 * Errors: STEAD_PEER if the daemon has ended; those of its journal.
 */
stead_status stead_daemon_list(const struct stead_daemon *daemon,
                               bool all,
                               char **json,
                               struct stead_error **error);

/**
 * What a request would do and how long it would take, as stead_stage_preview says it. `cancel` may be NULL; else it stops that, in the
 * daemon, too. The text is the caller's, to be freed with stead_text_free.
 *
 * Errors: those with which the request would fail before it starts; STEAD_TIMEOUT for what takes long to look through; STEAD_PEER
 * if the daemon has ended.
 */
stead_status stead_daemon_preview(const struct stead_daemon *daemon,
                                  const struct stead_stage_request *request,
                                  struct stead_cancel *cancel,
                                  char **json,
                                  struct stead_error **error);

/**
 * How the target of a request "sync" differs from its source, as stead_stage_check says it. `cancel` may be NULL; else it stops that, in the
 * daemon, too. The text is the caller's, to be freed with stead_text_free.
 *
 * Errors: as stead_stage_check; STEAD_TIMEOUT for what takes longer than a day to read; STEAD_PEER if the daemon has ended.
 */
stead_status stead_daemon_check(const struct stead_daemon *daemon,
                                const struct stead_stage_request *request,
                                struct stead_cancel *cancel,
                                char **json,
                                struct stead_error **error);

/**
 * The dataspaces of the daemon, as stead_df says them. The text is the caller's, to be freed with stead_text_free.
 *
 * Errors: STEAD_PEER if the daemon has ended; those of its journal.
 */
stead_status stead_daemon_spaces(const struct stead_daemon *daemon, char **json, struct stead_error **error);

/**
 * The names of the nodes of the pool that the daemon belongs to, as a JSON list; of its own one if there is no pool. The text is the
 * caller's, to be freed with stead_text_free.
 *
 * Errors: STEAD_PEER if the daemon has ended.
 */
stead_status stead_daemon_nodes(const struct stead_daemon *daemon,
                                char **json,
                                struct stead_error **error);

/**
 * Numbers about this user's transfers in the text form of Prometheus. The text is the caller's, to be freed with stead_text_free.
 *
 * Errors: STEAD_PEER if the daemon has ended; those of its journal.
 */
stead_status stead_daemon_metrics(const struct stead_daemon *daemon,
                                  char **text,
                                  struct stead_error **error);

/**
 * Has the daemon run a flow, with the rights of this user, whether or not the program goes on; `number` is what it is asked for by. It reads
 * streams that are written on any node of the pool, and writes them on the node of the daemon, in whose folders recorded steps are. It ends
 * with the daemon, and with the job of this program, if that is of one on that node. `options` may be NULL; of them threads, memory, steps and timeout_ms
 * are those of a flow in a daemon.
 *
 * Errors: STEAD_USAGE for a flow that makes no sense or has functions, and for other options; STEAD_PERMISSION for dataspaces of jobs;
 * STEAD_LIMIT if 16 flows of this user run, or the node is drained; STEAD_PEER if the daemon has ended.
 */
stead_status stead_daemon_flow_begin(struct stead_daemon *daemon,
                                     const struct stead_flow *flow,
                                     const struct stead_flow_options *options,
                                     int64_t *number,
                                     struct stead_error **error);

/**
 * Waits until a flow is over that the daemon runs, for `timeout_ms` milliseconds: not at all if that is 0, without an end if it is negative.
 * STEAD_OK if it has finished. `json` may be NULL: there goes what it has done, as stead_flow_run says it. The text is the caller's, to be freed
 * with stead_text_free.
 *
 * Errors: STEAD_TIMEOUT if it is not over by then: it goes on; STEAD_CANCELLED if it was given up; what it has failed with; STEAD_USAGE if there
 * is none of this number; STEAD_PEER if the daemon has ended, and its flows with it.
 */
stead_status stead_daemon_flow_wait(const struct stead_daemon *daemon,
                                    int64_t number,
                                    int64_t timeout_ms,
                                    char **json,
                                    struct stead_error **error);

/**
 * Gives up a flow that the daemon runs: readers of what it writes are told.
 *
 * Errors: STEAD_USAGE if there is none of this number, or it is over; STEAD_TIMEOUT if a step of it takes long, after which it ends; STEAD_PEER
 * if the daemon has ended.
 */
stead_status stead_daemon_flow_cancel(struct stead_daemon *daemon,
                                      int64_t number,
                                      struct stead_error **error);

/**
 * The flows that the daemon runs for this user, the latest first, as a JSON list: of each its number `flow`, its `name`, the streams that it
 * `reads` and `writes`, its `state` ("running", "finished", "failed" or "cancelled"), its `job` or null, when it was `begun` in seconds since 1970, the
 * `seconds` that it has run, the `steps` that it has had, and its `report` or `error`, or null. Those that are over only if `all`: 64 of them, for
 * an hour. The text is the caller's, to be freed with stead_text_free.
 *
 * Errors: STEAD_PEER if the daemon has ended.
 */
stead_status stead_daemon_flows(const struct stead_daemon *daemon,
                                bool all,
                                char **json,
                                struct stead_error **error);

/**
 * Keeps a file or a folder of this node with all that lies in it, for `seconds` from now on or, if that is negative, for ever: neither
 * the end of a job nor that of its time removes it. `location` is a path, or a name in a dataspace. This and its kin are done by the
 * daemon of the node, or by this process if there is none.
 *
 * Errors: STEAD_NOT_FOUND; STEAD_USAGE for what lies in a bucket; STEAD_LIMIT if too much is kept; STEAD_PEER, STEAD_TIMEOUT.
 */
stead_status stead_persist_store(const char *location,
                                 int64_t seconds,
                                 struct stead_error **error);

/**
 * Keeps something no longer: it stays until its time or that of its job is over.
 *
 * Errors: STEAD_USAGE if it is not kept; STEAD_PEER, STEAD_TIMEOUT.
 */
stead_status stead_persist_delete(const char *location, struct stead_error **error);

/**
 * Lets another user, by name or number, read something with all that lies in it and will, by access lists of the file system.
 *
 * Errors: STEAD_NOT_FOUND; STEAD_PERMISSION if it is another user's; STEAD_USAGE for users that there are not and file systems without
 * access lists; STEAD_PEER, STEAD_TIMEOUT.
 */
stead_status stead_persist_share(const char *location,
                                 const char *user,
                                 struct stead_error **error);

/**
 * Lets that user read it no longer.
 *
 * Errors: STEAD_USAGE if it is not shared with that user; otherwise as stead_persist_share.
 */
stead_status stead_persist_unshare(const char *location, const char *user, struct stead_error **error);

/**
 * What is kept and shared, as a JSON list: `location`, `path`, `kept`, `until` (seconds since 1970, or null), `left` (seconds, or null), `shared` (numbers of users). The text
 * is the caller's, to be freed with stead_text_free.
 *
 * Errors: STEAD_PEER, STEAD_TIMEOUT.
 */
stead_status stead_persist_list(char **json,
                                struct stead_error **error);

/**
 * The streams of this user on this node and on others, as JSON: a list of objects in the order of their names, each with the `name` of a stream
 * and the `node` that it is on, which is left out where there is no pool; and then, for each node that has not answered, one with
 * the `node` and an `error`, in which `node` is null if it is not known which nodes there are. To be freed with stead_text_free.
 * `survey` may be NULL: all that is usual.
 *
 * Errors: STEAD_USAGE for dataspaces that are none; STEAD_PERMISSION if the folder of streams is not private to this user;
 * STEAD_NOT_FOUND if the pool has no node of a name, and STEAD_PEER if nodes are named and there is no daemon.
 */
stead_status stead_stream_list(const struct stead_stream_survey *survey,
                               char **json,
                               struct stead_error **error);

/**
 * What there is to know of the stream `name`, as JSON: its state, its steps and its memory, the variables of the last complete step,
 * its writers and readers and how far each of them is, as this node tells it, or the first one that has it; what other nodes tell is in
 * `others`, and those that have not answered are in `missed`. None are asked where all of the stream is on this one. To be freed with
 * stead_text_free. A name with a '/' is a folder that steps were recorded in. `survey` is as in stead_stream_list.
 *
 * Errors: STEAD_NOT_FOUND if there is none; STEAD_TIMEOUT if a process that is stopped keeps it locked; those of stead_stream_list.
 */
stead_status stead_stream_describe(const struct stead_stream_survey *survey,
                                   const char *name,
                                   char **json,
                                   struct stead_error **error);

/**
 * The streams that were recorded in the folder at `location`, a path or a place in a dataspace, and in the folders in it, as JSON: a list, by
 * their locations, each with the `location` that a reader opens, the `name` of the stream, how many `writers` it has, `steps` that all of them have
 * recorded, `bytes` of the files, its `state`, and whether it `is_whole`; `damage` says why it cannot be read, where it cannot. To be freed
 * with stead_text_free.
 *
 * `dataspaces` are as in stead_stream_writer_options; NULL and 0 for the usual ones.
 *
 * Errors: STEAD_NOT_FOUND if there is no such folder; STEAD_USAGE for one on another node or in a bucket, and for dataspaces that are none;
 * those of the system.
 */
stead_status stead_stream_recordings(const char *const *dataspaces,
                                     size_t dataspaces_count,
                                     const char *location,
                                     char **json,
                                     struct stead_error **error);

/**
 * Who will get what from whom of a step of the stream `name`, of all nodes that have its writers together, as JSON: for each reader what it
 * will copy and look at, for each pair of a reader and a writer the same, what is in memory, and warnings of what may be slow. It goes by
 * the blocks of the last complete step, and by the boxes that readers have got last; for those who have got nothing yet it assumes rows.
 * As many readers as `readers` are assumed beside those that are there. Nodes that have not answered are in `missed`. To be freed with
 * stead_text_free. `survey` is as in stead_stream_list.
 *
 * Errors: those of stead_stream_describe; STEAD_FORMAT if what writers say is damaged.
 */
stead_status stead_stream_explain(const struct stead_stream_survey *survey,
                                  const char *name,
                                  uint64_t readers,
                                  char **json,
                                  struct stead_error **error);

/**
 * Removes the stream `name` and frees its memory. With `force` also one that is written or read: who does so is told. A name with a '/'
 * is a folder that steps were recorded in. It is one of this node; stead_stream_remove_on_nodes removes others. `dataspaces` are as in
 * stead_stream_writer_options; NULL and 0 for the usual ones.
 *
 * Errors: STEAD_NOT_FOUND if there is none; STEAD_USAGE if somebody writes or reads it and `force` is not set, and for dataspaces that are
 * none; STEAD_TIMEOUT if a process that is stopped keeps it locked.
 */
stead_status stead_stream_remove(const char *const *dataspaces,
                                 size_t dataspaces_count,
                                 const char *name,
                                 bool force,
                                 struct stead_error **error);

/**
 * Removes the stream `name` on this node and on others, as stead_stream_remove does on this one: each removes its own, if this user has one
 * there. `survey` is as in stead_stream_list, so that without names it is all nodes of the pool. What was removed is told as JSON: a list of
 * objects, each with the `name` and the `node`, which is left out where there is no pool; and then, for each node that has not removed its
 * own, or has not answered, one with the `node` and an `error`. Of one that has not answered it is not known whether it has removed it. To
 * be freed with stead_text_free.
 *
 * Errors: STEAD_NOT_FOUND if there is none, or the pool has no node of a name; STEAD_USAGE for a name with a '/' where other nodes may be
 * asked; if nothing was removed on any node, those of stead_stream_remove, also of another node; those of stead_stream_list.
 */
stead_status stead_stream_remove_on_nodes(const struct stead_stream_survey *survey,
                                          const char *name,
                                          bool force,
                                          char **json,
                                          struct stead_error **error);

/**
 * Makes a coupling of all ranks of a fabric, which is made first: all ranks of the job call this, whatever program they run, and each says
 * the name of the part that it is of: letters, digits, '.', '-' and '_'. All ranks of a part write a stream together, or read it, in their
 * order. With MPI, stead_mpi_coupling of stead_mpi.h is simpler.
 *
 * All ranks are to come within `timeout_ms` milliseconds after the fabric was made, or ten minutes if it is 0.
 *
 * `dataspaces` are folders of dataspaces such as "memory=/dev/shm/me", before those that are configured: streams lie in "memory".
 *
 * A thread answers readers of other nodes, until no rank has a coupling any more; a rank may free its own before others do.
 *
 * Errors: STEAD_USAGE for a name that is none; STEAD_PERMISSION if the folder of streams is not private to this user; STEAD_TIMEOUT if
 * a rank has not come, with its number; STEAD_PEER if another rank fails, or is gone; those of `make`.
 */
stead_status stead_coupling_new(stead_make_fabric_fn make,
                                void *data,
                                const char *part,
                                const char *const *dataspaces,
                                size_t dataspaces_count,
                                uint64_t timeout_ms,
                                struct stead_coupling **coupling,
                                struct stead_error **error);

/**
 * Which of the parts, by their names, this rank is of, from 0 on. 0 for what is no coupling.
 */
uint64_t stead_coupling_part(const struct stead_coupling *coupling);

/**
 * Which rank of its part this is, from 0 on. 0 for what is no coupling.
 */
uint64_t stead_coupling_rank(const struct stead_coupling *coupling);

/**
 * How many ranks its part has. 0 for what is no coupling.
 */
uint64_t stead_coupling_ranks(const struct stead_coupling *coupling);

/**
 * Which rank of all, in the communicator that the coupling was made of, a rank of its part is. 0 for what is no rank of it, and no coupling.
 */
uint64_t stead_coupling_member(const struct stead_coupling *coupling,
                               uint64_t rank);

/**
 * Frees a coupling. Writers and readers that are open go on. NULL is nothing to do; a handle that is none any more is left alone.
 */
void stead_coupling_free(struct stead_coupling *coupling);

/**
 * Takes the place of a writer of the stream `name`, which begins with the first of them. `options` may be NULL: one writer, with all
 * that is usual. A name has letters, digits, '.', '-' and '_'.
 *
 * Errors: STEAD_USAGE if other writers say something else of the stream, or somebody is this one already, for options that make no
 * sense, and if there are steps of another stream where this one is to be recorded; STEAD_PERMISSION if the folder of streams is not
 * private to this user; STEAD_LIMIT if this process may have no more files open; STEAD_NO_SPACE, also if no dataspace has
 * room for what is to spill; STEAD_TIMEOUT.
 */
stead_status stead_stream_writer_open(const char *name,
                                      const struct stead_stream_writer_options *options,
                                      struct stead_stream_writer **writer,
                                      struct stead_error **error);

/**
 * Says what a variable is, and gives its number: its `name`, the type of its elements, the `ndim` lengths of the whole array, of which
 * writers put parts, and the names of its dimensions, or NULL. No dimension is a scalar. What was said of a variable of the same name
 * before, attributes too, is so no more: shapes may change from step to step.
 *
 * Errors: STEAD_USAGE for what can be no variable, and if a part of it was put into the step that is open and it is another one now;
 * STEAD_LIMIT if there are too many.
 */
stead_status stead_stream_writer_define(struct stead_stream_writer *writer,
                                        const char *name,
                                        stead_dtype dtype,
                                        size_t ndim,
                                        const uint64_t *shape,
                                        const char *const *dims,
                                        uint32_t *variable,
                                        struct stead_error **error);

/**
 * Says something of a variable beside its data, as text: a unit, a long name. An attribute of the same key goes. It is to be said before
 * a part of the variable is put into a step, and holds for all steps to come.
 *
 * Errors: STEAD_USAGE for a variable or a key that is none, and in a step into which a part of it was put; STEAD_LIMIT if there are too
 * many.
 */
stead_status stead_stream_writer_attribute_text(struct stead_stream_writer *writer,
                                                uint32_t variable,
                                                const char *key,
                                                const char *value,
                                                struct stead_error **error);

/**
 * As stead_stream_writer_attribute_text, with a whole number.
 */
stead_status stead_stream_writer_attribute_int(struct stead_stream_writer *writer,
                                               uint32_t variable,
                                               const char *key,
                                               int64_t value,
                                               struct stead_error **error);

/**
 * As stead_stream_writer_attribute_text, with a number.
 */
stead_status stead_stream_writer_attribute_double(struct stead_stream_writer *writer,
                                                  uint32_t variable,
                                                  const char *key,
                                                  double value,
                                                  struct stead_error **error);

/**
 * As stead_stream_writer_attribute_text, with a list of `n` texts.
 */
stead_status stead_stream_writer_attribute_texts(struct stead_stream_writer *writer,
                                                 uint32_t variable,
                                                 const char *key,
                                                 const char *const *values,
                                                 size_t n,
                                                 struct stead_error **error);

/**
 * As stead_stream_writer_attribute_text, with a list of `n` whole numbers.
 */
stead_status stead_stream_writer_attribute_ints(struct stead_stream_writer *writer,
                                                uint32_t variable,
                                                const char *key,
                                                const int64_t *values,
                                                size_t n,
                                                struct stead_error **error);

/**
 * As stead_stream_writer_attribute_text, with a list of `n` numbers.
 */
stead_status stead_stream_writer_attribute_doubles(struct stead_stream_writer *writer,
                                                   uint32_t variable,
                                                   const char *key,
                                                   const double *values,
                                                   size_t n,
                                                   struct stead_error **error);

/**
 * What has become of readers since this was asked last, as JSON: a list of objects with `presence` ("here", "left" or "died"), `group`, `rank`,
 * `process`, how many steps the reader `had`, which these are (`had_ranges`, pairs of a first and a last step; of a reader that has missed
 * steps often the newest ones, after `had_before` others), how many were `dropped` before it, and which `step` comes next for it. To be
 * freed with stead_text_free. Readers of other nodes have their `node` and `rank_of_job`, too.
 *
 * Errors: STEAD_TIMEOUT if a process that is stopped keeps the stream locked.
 */
stead_status stead_stream_writer_events(struct stead_stream_writer *writer,
                                        char **json,
                                        struct stead_error **error);

/**
 * What a writer has done so far, as JSON: steps that it has ended, bytes that it has put and those of them that were copied, seconds of
 * processors that copies of 64 KiB or more have taken, seconds that it has waited and for whom, the same of its last step, and the memory
 * of the stream with the most that it has taken. To be freed with stead_text_free.
 *
 * Errors: STEAD_USAGE for what is no writer.
 */
stead_status stead_stream_writer_report(const struct stead_stream_writer *writer,
                                        char **json,
                                        struct stead_error **error);

/**
 * Begins a step, when there is room for it: readers that are waited for are not too far behind. Its number goes to `step`, which may be
 * NULL.
 *
 * Errors: STEAD_USAGE within a step; STEAD_TIMEOUT, with who was waited for; STEAD_PEER if another writer has ended, or somebody has
 * removed the stream.
 */
stead_status stead_stream_writer_begin(struct stead_stream_writer *writer,
                                       uint64_t *step,
                                       struct stead_error **error);

/**
 * Whether a block of a variable can be told by a start of so many numbers and a count of so many: as many as it has dimensions, each. It is for
 * languages whose lists know how long they are, before a function that believes that they are as long.
 *
 * Errors: STEAD_USAGE.
 */
stead_status stead_stream_writer_fits(struct stead_stream_writer *writer,
                                      uint32_t variable,
                                      size_t start,
                                      size_t count,
                                      struct stead_error **error);

/**
 * Whether a variable has elements of this type and so many dimensions, by what was said of it last. It is for languages in which a variable has
 * a type, before a function that takes memory to be as large as the variable says by now.
 *
 * Errors: STEAD_USAGE.
 */
stead_status stead_stream_writer_is(struct stead_stream_writer *writer,
                                    uint32_t variable,
                                    stead_dtype dtype,
                                    size_t ndim,
                                    struct stead_error **error);

/**
 * Puts a block of a variable into the step that is open: the part that begins at `start` and has `count` elements in each dimension of
 * the whole array; both NULL for all of it. Its elements lie one after the other at `data`, the last index running fastest. They are
 * copied.
 *
 * Errors: STEAD_USAGE outside a step, and for a block that is not within the array; STEAD_LIMIT if the step does not fit the memory of
 * the stream; STEAD_TIMEOUT if readers do not give memory free; STEAD_NO_SPACE; STEAD_PEER.
 */
stead_status stead_stream_writer_put(struct stead_stream_writer *writer,
                                     uint32_t variable,
                                     const uint64_t *start,
                                     const uint64_t *count,
                                     const void *data,
                                     struct stead_error **error);

/**
 * Memory for a block of a variable, to be filled and put with stead_stream_writer_put_room without a copy, into this step or a later
 * one. `*memory` is where its elements go, the last index running fastest, aligned to 64 bytes: at first whatever was there before; NULL
 * if there are none. The rest is as in stead_stream_writer_put.
 *
 * Errors: those of stead_stream_writer_put.
 */
stead_status stead_stream_writer_empty(struct stead_stream_writer *writer,
                                       uint32_t variable,
                                       const uint64_t *start,
                                       const uint64_t *count,
                                       void **memory,
                                       struct stead_stream_room **room,
                                       struct stead_error **error);

/**
 * Puts a block that was filled in its place. The handle of the room is none any more, whatever comes of it, unless `writer` or `room`
 * was no handle; its memory must not be written to.
 *
 * Errors: STEAD_USAGE outside a step, for a room of another writer, and if the variable has another shape by now.
 */
stead_status stead_stream_writer_put_room(struct stead_stream_writer *writer,
                                          struct stead_stream_room *room,
                                          struct stead_error **error);

/**
 * Frees memory that is not put. NULL is nothing to do; a handle that is none any more is left alone.
 */
void stead_stream_room_free(struct stead_stream_room *room);

/**
 * Ends the step: when all writers have, readers see it.
 *
 * Errors: STEAD_USAGE outside a step; STEAD_NO_SPACE, when it can be tried again; STEAD_PEER if another writer has ended.
 */
stead_status stead_stream_writer_end(struct stead_stream_writer *writer,
                                     struct stead_error **error);

/**
 * Closes the stream: readers come to its end when all writers have. What is complete stays for them, and this process may end. The
 * handle is none any more, whatever comes of it.
 *
 * Errors: STEAD_USAGE within a step, which readers never see: they are told that the stream has failed; STEAD_TIMEOUT if a process that
 * is stopped keeps it locked.
 */
stead_status stead_stream_writer_close(struct stead_stream_writer *writer,
                                       struct stead_error **error);

/**
 * Gives the stream up: readers are told that it has failed, after what is complete. The handle is none any more, whatever comes of it.
 *
 * Errors: STEAD_TIMEOUT if a process that is stopped keeps it locked.
 */
stead_status stead_stream_writer_abandon(struct stead_stream_writer *writer,
                                         struct stead_error **error);

/**
 * Frees a writer that was not closed: it is closed, or given up if it is within a step. NULL is nothing to do; a handle that is none any
 * more, such as one that was closed, is left alone.
 */
void stead_stream_writer_free(struct stead_stream_writer *writer);

/**
 * Memory of `size` bytes that writers of streams put without a copy, by stead_stream_writer_put_buffer, as often as one likes. `*memory` is
 * where it begins, aligned to 64 bytes at least: at first whatever was there before; NULL if `size` is 0. It lies in the dataspace "memory";
 * `dataspaces` are as in stead_stream_writer_options, NULL and 0 for those that are configured.
 *
 * It counts for the memory of a stream each time that it is put, until its step has gone, and before that for none. Its pages are there when
 * this returns, which takes as long as a copy does, unless memory of this size was freed whose steps have gone: that is lent again. So a program
 * that makes one for each step has no new pages after the first few. Less than 64 KiB is copied when it is put, which is less work; so is what is
 * beyond a quarter of the files that this process may have open, each having one; all of it where the file system has no files without a name;
 * and what is put by a process that was forked since.
 *
 * Errors: STEAD_USAGE for dataspaces that are none; STEAD_NO_SPACE if there is not as much memory; STEAD_LIMIT if this process may have no
 * such file, or no more files or mappings; STEAD_PERMISSION if the folder of streams is not private to this user.
 */
stead_status stead_stream_empty(const char *const *dataspaces,
                                size_t dataspaces_count,
                                uint64_t size,
                                void **memory,
                                struct stead_stream_buffer **buffer,
                                struct stead_error **error);

/**
 * Puts a block that lies at the beginning of a buffer, without a copy if readers can look at it there: see stead_stream_empty. The handle stays
 * one. From then on the memory must not be written to; it may be read, and put again, until it is freed. The rest is as in
 * stead_stream_writer_put.
 *
 * Errors: those of stead_stream_writer_put; STEAD_USAGE if the buffer is shorter than the block.
 */
stead_status stead_stream_writer_put_buffer(struct stead_stream_writer *writer,
                                            uint32_t variable,
                                            const uint64_t *start,
                                            const uint64_t *count,
                                            const struct stead_stream_buffer *buffer,
                                            struct stead_error **error);

/**
 * Frees a buffer, whose memory must not be used any more: steps that have it keep it as long as they are there. NULL is nothing to do; a handle
 * that is none any more is left alone.
 */
void stead_stream_buffer_free(struct stead_stream_buffer *buffer);

/**
 * Takes the place of a rank of a group of readers of the stream `name`, and waits for the stream if nobody writes it yet. `options` may
 * be NULL: one reader, with all that is usual. A name with a '/' is a folder that steps were recorded in, or still are: they are read as
 * those of a stream, from the first one on, and nobody waits for who reads them.
 *
 * Errors: STEAD_TIMEOUT if nobody writes it; STEAD_NOT_FOUND if no steps were recorded there, or the pool has no such node; STEAD_PEER if nodes
 * are named and no daemon has begun in this time; STEAD_USAGE if somebody else is this rank, others say something else of the group, or
 * options make no sense; STEAD_PERMISSION if the folder of streams is not private to this user; STEAD_LIMIT if this process may have no more
 * files open.
 */
stead_status stead_stream_reader_open(const char *name,
                                      const struct stead_stream_reader_options *options,
                                      struct stead_stream_reader **reader,
                                      struct stead_error **error);

/**
 * The next step, as soon as all writers have ended it; NULL when they have closed the stream. It is a new handle, to be freed with
 * stead_stream_step_free: as long as there is one, or an array of it, it stays as it is, and its memory is taken. Writers do not wait
 * for the step before any more.
 *
 * Errors: STEAD_PEER if a writer has ended in the middle, or somebody has removed the stream, after all steps that are complete;
 * STEAD_TIMEOUT, with who was waited for.
 */
stead_status stead_stream_reader_next(struct stead_stream_reader *reader,
                                      struct stead_stream_step **step,
                                      struct stead_error **error);

/**
 * As stead_stream_reader_next, for `timeout_ms` milliseconds at most: NULL also if there is no step by then, and
 * stead_stream_reader_is_over tells which it is.
 *
 * Errors: those of stead_stream_reader_next, but for STEAD_TIMEOUT.
 */
stead_status stead_stream_reader_next_within(struct stead_stream_reader *reader,
                                             uint64_t timeout_ms,
                                             struct stead_stream_step **step,
                                             struct stead_error **error);

/**
 * True after the last step was given, and none will come. False for what is no reader.
 */
bool stead_stream_reader_is_over(const struct stead_stream_reader *reader);

/**
 * The step of a number, if it is still there, whether it was given or not. As stead_stream_reader_next.
 *
 * Errors: STEAD_NOT_FOUND if it is not, or not yet complete.
 */
stead_status stead_stream_reader_at(struct stead_stream_reader *reader,
                                    uint64_t number,
                                    struct stead_stream_step **step,
                                    struct stead_error **error);

/**
 * The step of a number, as soon as it is complete, with a variable in it, for `timeout_ms` milliseconds at most. The reader is done with
 * those before it. As stead_stream_reader_next.
 *
 * Errors: STEAD_NOT_FOUND if it has gone, the stream ends before it, or it has no such variable; STEAD_TIMEOUT, with who was waited for;
 * those of stead_stream_reader_next.
 */
stead_status stead_stream_reader_wait_for(struct stead_stream_reader *reader,
                                          const char *variable,
                                          uint64_t number,
                                          uint64_t timeout_ms,
                                          struct stead_stream_step **step,
                                          struct stead_error **error);

/**
 * The numbers of the steps that are there now, in order: as many as fit into `room` go to `numbers`, which may be NULL if `room` is 0;
 * how many there are goes to `count`.
 *
 * Errors: STEAD_TIMEOUT if a process that is stopped keeps the stream locked.
 */
stead_status stead_stream_reader_steps(const struct stead_stream_reader *reader,
                                       uint64_t *numbers,
                                       size_t room,
                                       size_t *count,
                                       struct stead_error **error);

/**
 * What a reader has done so far, as JSON: steps that it was given, boxes and bytes that were copied, those looked at and fetched from other nodes, seconds
 * of processors that copies of 64 KiB or more have taken, seconds that were waited for steps, and the memory of the stream with the most
 * that it has taken. To be freed with stead_text_free.
 *
 * Errors: STEAD_USAGE for what is no reader.
 */
stead_status stead_stream_reader_report(const struct stead_stream_reader *reader,
                                        char **json,
                                        struct stead_error **error);

/**
 * Frees a reader: writers do not wait for it any more. Its steps and arrays stay until they are freed. NULL is nothing to do; a handle
 * that is none any more is left alone.
 */
void stead_stream_reader_free(struct stead_stream_reader *reader);

/**
 * The number of a step, from 0 on; 0 for what is none.
 */
uint64_t stead_stream_step_number(const struct stead_stream_step *step);

/**
 * How many steps before it the reader was not given, since they went before it came to them; 0 for what is no step.
 */
uint64_t stead_stream_step_dropped(const struct stead_stream_step *step);

/**
 * The bytes of the arrays that writers have put into a step; 0 for what is none.
 */
uint64_t stead_stream_step_bytes(const struct stead_stream_step *step);

/**
 * When the last writer ended a step, in nanoseconds since 1970; 0 for what is none.
 */
uint64_t stead_stream_step_completed_at(const struct stead_stream_step *step);

/**
 * What a step has cost its reader so far, as JSON: how many boxes were copied, bytes that were copied, looked at and fetched from other
 * nodes, seconds of processors that copies of 64 KiB or more have taken, seconds that were waited for it, and the most memory that the stream
 * has taken on this node as a multiple of what was put into the step there; without writers here, that of the nodes which it comes
 * from. To be freed with stead_text_free.
 *
 * Errors: STEAD_USAGE for what is no step.
 */
stead_status stead_stream_step_report(const struct stead_stream_step *step,
                                      char **json,
                                      struct stead_error **error);

/**
 * How many variables a step has; 0 for what is none.
 */
size_t stead_stream_step_variables(const struct stead_stream_step *step);

/**
 * What variable `i` of a step is, from 0 on, copied to `variable`, which has `size` bytes: sizeof(stead_stream_variable) of the header
 * that the caller was compiled with. What only a later one has is 0.
 *
 * Errors: STEAD_USAGE if there are not as many, and for a size that no version has.
 */
stead_status stead_stream_step_variable(const struct stead_stream_step *step,
                                        size_t i,
                                        struct stead_stream_variable *variable,
                                        size_t size,
                                        struct stead_error **error);

/**
 * As stead_stream_step_variable, of the variable `name`.
 *
 * Errors: STEAD_NOT_FOUND if there is none; STEAD_USAGE for a size that no version has.
 */
stead_status stead_stream_step_find(const struct stead_stream_step *step,
                                    const char *name,
                                    struct stead_stream_variable *variable,
                                    size_t size,
                                    struct stead_error **error);

/**
 * Attribute `i` of the variable `name`, from 0 on, in the order of their keys, copied to `attribute`, which has `size` bytes:
 * sizeof(stead_stream_attribute) of the header that the caller was compiled with. What only a later one has is 0.
 *
 * Errors: STEAD_NOT_FOUND if there is no such variable; STEAD_USAGE if there are not as many, and for a size that no version has.
 */
stead_status stead_stream_step_attribute(const struct stead_stream_step *step,
                                         const char *name,
                                         size_t i,
                                         struct stead_stream_attribute *attribute,
                                         size_t size,
                                         struct stead_error **error);

/**
 * As stead_stream_step_attribute, of the attribute `key`.
 *
 * Errors: STEAD_NOT_FOUND if there is no such variable or attribute; STEAD_USAGE for a size that no version has.
 */
stead_status stead_stream_step_find_attribute(const struct stead_stream_step *step,
                                              const char *name,
                                              const char *key,
                                              struct stead_stream_attribute *attribute,
                                              size_t size,
                                              struct stead_error **error);

/**
 * Which parts of the variable `name` writers have put, as many as fit into `room`: the rank of each goes to `writers`; where it begins
 * and how many elements it has, in each of the ndim dimensions, to `starts` and `counts`, which have room for ndim times as many. They
 * may be NULL if `room` is 0. How many parts there are goes to `parts`.
 *
 * Errors: STEAD_NOT_FOUND if there is no such variable.
 */
stead_status stead_stream_step_parts(const struct stead_stream_step *step,
                                     const char *name,
                                     size_t room,
                                     uint64_t *writers,
                                     uint64_t *starts,
                                     uint64_t *counts,
                                     size_t *parts,
                                     struct stead_error **error);

/**
 * Whether a box of the variable `name` can be told by a start of so many numbers and a count of so many: as stead_stream_writer_fits.
 *
 * Errors: STEAD_NOT_FOUND if there is no such variable; STEAD_USAGE.
 */
stead_status stead_stream_step_fits(const struct stead_stream_step *step,
                                    const char *name,
                                    size_t start,
                                    size_t count,
                                    struct stead_error **error);

/**
 * Copies a box of the variable `name` to memory of the caller: the part that begins at `start` and has `count` elements in each dimension;
 * both NULL for all of it. `to` has `size` bytes, as many as the box has, and gets them with the last index running fastest. What several
 * writers have put is copied together.
 *
 * Errors: STEAD_NOT_FOUND if nobody has put a part of it, or there is no such variable; STEAD_USAGE for a box that is not within the
 * array, and for another size; STEAD_PEER if somebody has removed the stream.
 */
stead_status stead_stream_step_get_into(const struct stead_stream_step *step,
                                        const char *name,
                                        const uint64_t *start,
                                        const uint64_t *count,
                                        void *to,
                                        size_t size,
                                        struct stead_error **error);

/**
 * As stead_stream_step_get_into, of what writers have put: the rest of `to` stays as it is. How many bytes were copied goes to `copied`,
 * which may be NULL.
 *
 * Errors: those of stead_stream_step_get_into, but for parts that nobody has put.
 */
stead_status stead_stream_step_get_what_there_is(const struct stead_stream_step *step,
                                                 const char *name,
                                                 const uint64_t *start,
                                                 const uint64_t *count,
                                                 void *to,
                                                 size_t size,
                                                 size_t *copied,
                                                 struct stead_error **error);

/**
 * A box of the variable `name`, as in stead_stream_step_get_into, to be looked at where it lies: if one writer has put all of it, it is
 * that writer's memory, and nothing is copied; else it is copied together. Its first element is at `*data`. How many bytes it is from one
 * element to the next goes to `strides`, for each dimension; if that is NULL, the elements lie one after the other, with the last index
 * running fastest, and are copied where they do not.
 *
 * The array is a new handle, to be freed with stead_stream_array_free: until then its memory stays as it is, also when the step and the
 * reader have been freed, and cannot be used by writers. It must not be written to.
 *
 * Errors: those of stead_stream_step_get_into; STEAD_LIMIT if there is no memory for a copy.
 */
stead_status stead_stream_step_view(const struct stead_stream_step *step,
                                    const char *name,
                                    const uint64_t *start,
                                    const uint64_t *count,
                                    const void **data,
                                    int64_t *strides,
                                    struct stead_stream_array **array,
                                    struct stead_error **error);

/**
 * True if an array is memory of a writer, and was not copied. False for what is no array.
 */
bool stead_stream_array_is_view(const struct stead_stream_array *array);

/**
 * Frees an array. Its address is of no use any more. NULL is nothing to do; a handle that is none any more is left alone.
 */
void stead_stream_array_free(struct stead_stream_array *array);

/**
 * Frees a step. Its arrays stay until they are freed. NULL is nothing to do; a handle that is none any more is left alone.
 */
void stead_stream_step_free(struct stead_stream_step *step);

/**
 * Has a thread call a function with each step that comes, one after the other. Steps wait for it as for any reader. The reader is the
 * subscription's: the handle is none any more, also after an error, but for a `call` or a `subscription` that is NULL.
 *
 * It ends with the stream, with an error of it, and when no step comes within the `timeout_ms` that the reader was opened with: the
 * function is told for whom it was waited.
 *
 * Errors: STEAD_USAGE for what is no reader; those of the system if there is no thread.
 */
stead_status stead_stream_subscribe(struct stead_stream_reader *reader,
                                    stead_stream_call_fn call,
                                    void *user,
                                    struct stead_stream_subscription **subscription,
                                    struct stead_error **error);

/**
 * True once the function was called for the last time. True for what is no subscription.
 */
bool stead_stream_subscription_is_over(const struct stead_stream_subscription *subscription);

/**
 * Waits until the function was called for the last time: the stream has ended or failed, or no step came in time. The handle is none any
 * more.
 *
 * Errors: STEAD_USAGE for what is no subscription.
 */
stead_status stead_stream_subscription_join(struct stead_stream_subscription *subscription,
                                            struct stead_error **error);

/**
 * Ends a subscription: the function is not called again, and a call that is under way is waited for, unless it is that which calls this.
 * NULL is nothing to do; a handle that is none any more is left alone.
 */
void stead_stream_subscription_free(struct stead_stream_subscription *subscription);

/**
 * Reads a flow: the path of a file of TOML or, if it has more than one line, the text itself. docs/flows.md says what it has.
 *
 * Errors: STEAD_USAGE for what is no flow or makes no sense, with the line or the name of the node; those of the file.
 */
stead_status stead_flow_open(const char *toml,
                             struct stead_flow **flow,
                             struct stead_error **error);

/**
 * Gives a function under the name that nodes with `op = "map"` have for it. `user` is handed to it. One of the same name that was given before
 * is replaced; flows that run go on with the one that they have.
 *
 * Errors: STEAD_USAGE if `function` is NULL.
 */
stead_status stead_flow_function(struct stead_flow *flow,
                                 const char *name,
                                 stead_flow_fn function,
                                 void *user,
                                 struct stead_error **error);

/**
 * Loads the functions that a flow names in libraries, `function = "lib.so:name"`, but for those that were given: functions as stead_flow_fn, with
 * NULL as `user`. Paths are relative to the folder of its file, or of text to the current one. The code of the libraries is run: call it for
 * flows that are trusted.
 *
 * Errors: STEAD_NOT_FOUND if a library or a function in it is not there; STEAD_USAGE if it cannot be loaded.
 */
stead_status stead_flow_load(struct stead_flow *flow,
                             struct stead_error **error);

/**
 * Runs a flow until one of the streams that it reads has ended; in a thread of the program that writes them, or in any other program. `options`
 * may be NULL. `json` may be NULL: there goes what was done, as JSON: `steps` that
 * were read, those that had `dropped` before, those of one stream that were `unpaired` because another has no step of that number, bytes that were `fetched` from other nodes, and for each of `streams` that is written the name (`stream`), `steps`, and `bytes` of this rank.
 * To be freed with stead_text_free.
 *
 * Errors: STEAD_USAGE for variables that a node cannot work on, and for functions that were not given; STEAD_DATA if a function has failed;
 * STEAD_PEER if a writer of a stream has ended in the middle; STEAD_TIMEOUT; STEAD_LIMIT; STEAD_CANCELLED. Readers of what it writes are told.
 */
stead_status stead_flow_run(const struct stead_flow *flow,
                            const struct stead_flow_options *options,
                            char **json,
                            struct stead_error **error);

/**
 * Frees a flow. One that runs goes on. NULL is nothing.
 */
void stead_flow_free(struct stead_flow *flow);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* STEAD_H */
