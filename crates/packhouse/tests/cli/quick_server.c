/* What worker_server.py is when it behaves, for tests that start hundreds of them.
     quick_server --host ADDRESS --port PORT --starts FILE
   Appends its pid to FILE, listens, and answers everything with 200. SIGINT ends it well. */

#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static void leave(int signal) {
    (void)signal;
    _exit(0);
}

int main(int count, char **words) {
    struct sockaddr_in address = {.sin_family = AF_INET};
    for (int at = 1; at + 1 < count; at += 2) {
        if (!strcmp(words[at], "--host")) inet_pton(AF_INET, words[at + 1], &address.sin_addr);
        if (!strcmp(words[at], "--port")) address.sin_port = htons(atoi(words[at + 1]));
        if (!strcmp(words[at], "--starts")) {
            FILE *starts = fopen(words[at + 1], "a");
            if (!starts) return 1;
            fprintf(starts, "%d\n", (int)getpid());
            fclose(starts);
        }
    }
    signal(SIGINT, leave);
    signal(SIGPIPE, SIG_IGN);
    int listener = socket(AF_INET, SOCK_STREAM, 0), yes = 1;
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (bind(listener, (struct sockaddr *)&address, sizeof address) || listen(listener, 64)) {
        perror("bind");
        return 1;
    }
    for (;;) {
        static const char answer[] =
            "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
        char request[4096];
        int connection = accept(listener, NULL, NULL);
        if (connection < 0) continue;
        if (read(connection, request, sizeof request) > 0)
            (void)!write(connection, answer, sizeof answer - 1);
        close(connection);
    }
}
