/* Runs a command under ptrace and kills a process just before its k-th state-changing system call.
     stop_at [--attach PID]... [--all] ROLE K LOG PROGRAM [WORD...]
   ROLE is whose calls count: `keep`, `gate`, or `command` for every other process of PROGRAM. A
   process is PROGRAM's while it executes that very file, and its role is its first argument; what
   it forks has its role until it executes something else. K is 1 for the first call, 0 to kill
   nobody and count. Then every process is let go, so that those who were not killed run on as if
   nobody had watched, and the command is waited for. `--attach` watches a process that runs
   already. `--all` kills all that execute PROGRAM at that moment, whatever their role.
   LOG gets one line per counted call, `N PID ROLE CALL DETAIL`, and last `killed N` or
   `ended N`, where N is how many calls were counted.
   Exit: the command's code; 128 + its signal; 125 when this program itself failed.

   What counts: calls that change files, folders, locks, other processes or their own fate. Writes
   to the streams 1 and 2 don't, as nobody decides by them; sends count for keeper and gate, who
   speak with each other over a socket, and not for commands, who ask a server as often as it takes
   to be ready; nor does asking again for the lock that was asked for last. A call is stopped at its
   entry and never made, so K walks through every state that a killed process can leave. */

#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>
/* After <sys/ptrace.h>, whose names it defines again as macros. */
#include <linux/ptrace.h>

#define TASKS_MAX 4096
/* How long an attached process may outlive the command. */
#define PATIENCE_S 30
#define OPTIONS                                                                                   \
    (PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK | PTRACE_O_TRACECLONE |     \
     PTRACE_O_TRACEEXEC)

/* One thread that is traced. */
struct task {
    pid_t pid;
    char role[16]; /* "" while it executes another program */
    int released;  /* told to stop so that it can be let go */
    int held;      /* stopped before its parent's fork was seen, and waits for it */
    char last[320]; /* its last counted call */
};

static struct task tasks[TASKS_MAX];
static int task_count;
static struct stat program;
static const char *wanted;
static long target, counted;
static int all, killing_over;
static volatile sig_atomic_t impatient;
static FILE *record;

static void fail(const char *what) {
    fprintf(stderr, "stop_at: %s: %s\n", what, strerror(errno));
    exit(125);
}

static struct task *find(pid_t pid) {
    for (int at = 0; at < task_count; at++)
        if (tasks[at].pid == pid) return &tasks[at];
    return NULL;
}

static void forget(pid_t pid) {
    struct task *task = find(pid);
    if (task) *task = tasks[--task_count];
}

static struct task *add(pid_t pid) {
    struct task *task = find(pid);
    if (task) return task;
    if (task_count == TASKS_MAX) {
        errno = E2BIG;
        fail("too many threads");
    }
    task = &tasks[task_count++];
    memset(task, 0, sizeof *task);
    task->pid = pid;
    return task;
}

/* The process that a thread belongs to. */
static pid_t process_of(pid_t thread) {
    char path[64], line[256];
    snprintf(path, sizeof path, "/proc/%d/status", thread);
    FILE *file = fopen(path, "re");
    int group = thread;
    while (file && fgets(line, sizeof line, file))
        if (sscanf(line, "Tgid: %d", &group) == 1) break;
    if (file) fclose(file);
    return group;
}

static void find_role(struct task *task) {
    char path[64], words[4096] = {0};
    struct stat executable;
    task->role[0] = 0;
    snprintf(path, sizeof path, "/proc/%d/exe", task->pid);
    if (stat(path, &executable) || executable.st_ino != program.st_ino ||
        executable.st_dev != program.st_dev)
        return;
    snprintf(path, sizeof path, "/proc/%d/cmdline", task->pid);
    int file = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t length = file < 0 ? 0 : read(file, words, sizeof words - 1);
    if (file >= 0) close(file);
    const char *first = length > 0 ? words + strlen(words) + 1 : "";
    int hidden = !strcmp(first, "keep") || !strcmp(first, "gate");
    strcpy(task->role, hidden ? first : "command");
}

/* What a descriptor is open on, for the log. */
static const char *file_of(pid_t pid, uint64_t fd) {
    static char target_path[256];
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/fd/%d", pid, (int)fd);
    ssize_t length = readlink(path, target_path, sizeof target_path - 1);
    target_path[length < 0 ? 0 : length] = 0;
    return target_path;
}

static const char *text_at(pid_t pid, uint64_t address) {
    static char text[256];
    char path[64];
    memset(text, 0, sizeof text);
    snprintf(path, sizeof path, "/proc/%d/mem", pid);
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return text;
    /* A page may end before the text does, so it is read byte by byte. */
    for (size_t at = 0; at + 1 < sizeof text; at++)
        if (pread(file, &text[at], 1, (off_t)(address + at)) != 1 || !text[at]) break;
    close(file);
    return text;
}

static int is_stream_or_socket(pid_t pid, uint64_t fd) {
    return fd == 1 || fd == 2 || !strncmp(file_of(pid, fd), "socket:", 7);
}

/* The name of a call that changes something, with its detail, or NULL. */
static const char *counts(pid_t pid, const struct ptrace_syscall_info *info, const char **detail) {
    const __u64 *args = info->entry.args;
    *detail = "";
#define CASE(NAME, DETAIL)                                                                        \
    case SYS_##NAME: *detail = DETAIL; return #NAME
    switch (info->entry.nr) {
    case SYS_write:
    case SYS_writev:
        if (is_stream_or_socket(pid, args[0])) return NULL;
        *detail = file_of(pid, args[0]);
        return "write";
    case SYS_sendto: return strcmp(wanted, "command") ? "sendto" : NULL;
    case SYS_openat:
        if (!(args[2] & O_CREAT) && (args[2] & O_TMPFILE) != O_TMPFILE) return NULL;
        *detail = text_at(pid, args[1]);
        return "openat";
    case SYS_fcntl:
        if (args[1] != F_SETLK && args[1] != F_SETLKW && args[1] != F_OFD_SETLK &&
            args[1] != F_OFD_SETLKW && args[1] != F_ADD_SEALS)
            return NULL;
        *detail = file_of(pid, args[0]);
        return "fcntl";
    case SYS_kill:
        if (args[1] == 0) return NULL;
        return "kill";
    case SYS_prctl: return args[0] == 36 /* PR_SET_CHILD_SUBREAPER */ ? "prctl" : NULL;
    CASE(pwrite64, file_of(pid, args[0]));
    CASE(pwritev, file_of(pid, args[0]));
    CASE(copy_file_range, file_of(pid, args[2]));
    CASE(sendfile, file_of(pid, args[0]));
    CASE(fallocate, file_of(pid, args[0]));
    CASE(ftruncate, file_of(pid, args[0]));
    CASE(fsync, file_of(pid, args[0]));
    CASE(fdatasync, file_of(pid, args[0]));
    CASE(fchmod, file_of(pid, args[0]));
    CASE(utimensat, file_of(pid, args[0]));
    CASE(flock, file_of(pid, args[0]));
    CASE(syncfs, file_of(pid, args[0]));
    CASE(fchmodat, text_at(pid, args[1]));
    CASE(mkdirat, text_at(pid, args[1]));
    CASE(unlinkat, text_at(pid, args[1]));
    CASE(renameat2, text_at(pid, args[3]));
    CASE(linkat, text_at(pid, args[3]));
    CASE(symlinkat, text_at(pid, args[2]));
#ifdef SYS_renameat
    CASE(renameat, text_at(pid, args[3]));
#endif
#ifdef SYS_open /* the calls that newer machines no longer have */
    CASE(rename, text_at(pid, args[1]));
    CASE(mkdir, text_at(pid, args[0]));
    CASE(rmdir, text_at(pid, args[0]));
    CASE(unlink, text_at(pid, args[0]));
    CASE(link, text_at(pid, args[1]));
    CASE(symlink, text_at(pid, args[1]));
    CASE(chmod, text_at(pid, args[0]));
    CASE(fork, "");
    CASE(vfork, "");
#endif
    CASE(clone, "");
    CASE(clone3, "");
    CASE(execve, text_at(pid, args[0]));
    CASE(execveat, text_at(pid, args[1]));
    CASE(setsid, "");
    CASE(sched_setaffinity, "");
    CASE(tkill, "");
    CASE(tgkill, "");
    CASE(pidfd_send_signal, file_of(pid, args[0]));
    CASE(exit_group, "");
    default: return NULL;
    }
#undef CASE
}

static void note(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vfprintf(record, format, arguments);
    va_end(arguments);
    fflush(record);
}

static void kill_all(pid_t first) {
    kill(first, SIGKILL);
    for (int at = 0; all && at < task_count; at++)
        if (tasks[at].role[0]) kill(process_of(tasks[at].pid), SIGKILL);
}

/* Asks every thread to stop once more, so that it can be let go. */
static void release_all(void) {
    killing_over = 1;
    for (int at = 0; at < task_count; at++)
        if (!tasks[at].released) {
            tasks[at].released = 1;
            ptrace(PTRACE_INTERRUPT, tasks[at].pid, 0, 0);
        }
}

/* A call is about to be made: counts it, and kills where it is the one. */
static void at_entry(struct task *task) {
    struct ptrace_syscall_info info;
    const char *detail;
    if (strcmp(task->role, wanted) || killing_over) return;
    if (ptrace(PTRACE_GET_SYSCALL_INFO, task->pid, sizeof info, &info) <= 0 ||
        info.op != PTRACE_SYSCALL_INFO_ENTRY)
        return;
    const char *name = counts(task->pid, &info, &detail);
    if (!name) return;
    /* Whoever waits for a lock asks again and again, which changes nothing more. */
    char call[sizeof task->last];
    snprintf(call, sizeof call, "%s %s", name, detail);
    int locks = !strcmp(name, "fcntl") || !strcmp(name, "flock");
    if (locks && !strcmp(call, task->last)) return;
    strcpy(task->last, call);
    pid_t process = process_of(task->pid);
    counted++;
    note("%ld %d %s %s %s\n", counted, process, task->role, name, detail);
    if (counted != target) return;
    /* The kernel makes no call for a thread that is killed at its entry. */
    kill_all(process);
    release_all();
}

static void resume(pid_t pid, int signal) {
    /* Only what this program counts or may come to count is stopped at its calls. */
    struct task *task = find(pid);
    int request = killing_over || !task || !task->role[0] ? PTRACE_CONT : PTRACE_SYSCALL;
    ptrace(request, pid, 0, (long)signal);
}

static void let_go(pid_t pid, int signal) {
    ptrace(PTRACE_DETACH, pid, 0, (long)signal);
    forget(pid);
}

/* A thread stopped: what for, and on it goes. */
static void at_stop(pid_t pid, int status) {
    int signal = WSTOPSIG(status), event = status >> 16;
    int known = find(pid) != NULL;
    struct task *task = add(pid);
    if (!known && event == PTRACE_EVENT_STOP && !killing_over) {
        task->held = 1;
        return;
    }
    int passed = event || signal == (SIGTRAP | 0x80) ? 0 : signal;
    if (event == PTRACE_EVENT_FORK || event == PTRACE_EVENT_VFORK || event == PTRACE_EVENT_CLONE) {
        unsigned long child = 0;
        ptrace(PTRACE_GETEVENTMSG, pid, 0, &child);
        char role[16];
        strcpy(role, task->role);
        struct task *born = add((pid_t)child);
        strcpy(born->role, role);
        if (born->held) {
            born->held = 0;
            if (killing_over)
                let_go(born->pid, 0);
            else
                resume(born->pid, 0);
        } else {
            born->released = killing_over;
        }
        task = find(pid);
    }
    if (event == PTRACE_EVENT_EXEC) {
        unsigned long former = 0;
        ptrace(PTRACE_GETEVENTMSG, pid, 0, &former);
        if ((pid_t)former != pid) forget((pid_t)former);
        task = find(pid);
        find_role(task);
        /* Another program is nobody's to watch, nor is what it starts. */
        if (!task->role[0]) return let_go(pid, 0);
    }
    if (signal == (SIGTRAP | 0x80)) at_entry(task);
    if (killing_over) return let_go(pid, passed);
    if (event == PTRACE_EVENT_STOP && signal != SIGTRAP) {
        /* A group stop: it stays stopped until someone continues it. */
        ptrace(PTRACE_LISTEN, pid, 0, 0);
        return;
    }
    resume(pid, passed);
}

static void attach(pid_t pid) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/task", pid);
    DIR *threads = opendir(path);
    if (!threads) fail(path);
    for (struct dirent *entry; (entry = readdir(threads));) {
        pid_t thread = atoi(entry->d_name);
        if (thread <= 0) continue;
        if (ptrace(PTRACE_SEIZE, thread, 0, OPTIONS)) fail("cannot attach");
        find_role(add(thread));
        ptrace(PTRACE_INTERRUPT, thread, 0, 0);
    }
    closedir(threads);
}

static void lose_patience(int signal) {
    impatient = signal;
}

static pid_t launch(char **words) {
    pid_t child = fork();
    if (child < 0) fail("fork");
    if (child == 0) {
        raise(SIGSTOP);
        execvp(words[0], words);
        _exit(127);
    }
    int status;
    if (waitpid(child, &status, WUNTRACED) != child || !WIFSTOPPED(status)) fail("the child");
    if (ptrace(PTRACE_SEIZE, child, 0, OPTIONS)) fail("cannot trace");
    add(child);
    kill(child, SIGCONT);
    return child;
}

int main(int count, char **words) {
    pid_t attached[64];
    int attached_count = 0, at = 1;
    for (; at < count && !strncmp(words[at], "--", 2); at++) {
        if (!strcmp(words[at], "--all"))
            all = 1;
        else if (!strcmp(words[at], "--attach") && at + 1 < count && attached_count < 64)
            attached[attached_count++] = atoi(words[++at]);
    }
    if (count - at < 4) {
        fprintf(stderr, "usage: stop_at [--attach PID]... [--all] ROLE K LOG PROGRAM [WORD...]\n");
        return 125;
    }
    wanted = words[at];
    target = atol(words[at + 1]);
    record = fopen(words[at + 2], "we");
    if (!record) fail(words[at + 2]);
    if (stat(words[at + 3], &program)) fail(words[at + 3]);
    for (int each = 0; each < attached_count; each++) attach(attached[each]);
    struct sigaction alarm_action = {.sa_handler = lose_patience};
    sigaction(SIGALRM, &alarm_action, NULL);
    pid_t command = launch(words + at + 3);
    int code = -1;
    /* Until the command has ended and nobody is traced that could still be killed. */
    while (code < 0 || task_count > 0) {
        int status;
        pid_t pid = waitpid(-1, &status, __WALL);
        if (pid < 0) {
            if (errno != EINTR) break;
            if (impatient && !killing_over) release_all();
            continue;
        }
        if (WIFSTOPPED(status)) {
            at_stop(pid, status);
            continue;
        }
        forget(pid);
        if (pid != command) continue;
        code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
        /* What the command left running is watched only where that was asked for. */
        if (!killing_over && !attached_count) release_all();
        alarm(PATIENCE_S);
    }
    note("%s %ld\n", target && counted >= target ? "killed" : "ended", counted);
    return code < 0 ? 125 : code;
}
