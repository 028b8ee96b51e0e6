/* An example of a thin device, for a host with libmosquitto: takes tables from the broker, decides by them, and offloads
   by HTTP, with the report from which the server learns.

     cc -O2 -Isrc examples/mqtt/main.c src/hinge.c -lmosquitto -o thin
     ./thin BROKER PORT FLEET KIND DEVICE SERVER PORT MODEL < samples

   A line of samples is the bin, the local answer (the number of a class) and, if it is to be sent, the sample: the JSON
   of the request's "inputs". Each is answered with a line:

     accept BIN LOCAL
     offload BIN LOCAL ACCEPTED STATUS      ACCEPTED: samples of the bin since its last offload; STATUS of HTTP, or 0

   and each table that is taken is told on standard error. TLS, tokens and reconnecting are left out. */
#define _POSIX_C_SOURCE 200112L
#include <mosquitto.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "hinge.h"

static struct hinge gate = HINGE_START;
static char line[1 << 20], request[sizeof line + 1024];
static const char *fleet, *kind, *device, *server, *port, *model;

static void on_connect(struct mosquitto *client, void *unused, int code)
{
    char topic[256];
    (void)unused;
    if (code == 0 && snprintf(topic, sizeof topic, "hinge/1/%s/table/%s", fleet, kind) < (int)sizeof topic)
        mosquitto_subscribe(client, NULL, topic, 1);
    else
        fprintf(stderr, "the broker refuses: %s\n", mosquitto_connack_string(code));
}

static void on_message(struct mosquitto *client, void *unused, const struct mosquitto_message *message)
{
    (void)client, (void)unused;
    if (message->payloadlen > 0 && hinge_take(&gate, message->payload, (uint32_t)message->payloadlen))
        fprintf(stderr, "table %lu\n", (unsigned long)gate.counter);
}

static int connected(void)
{
    struct addrinfo hints, *found, *each;
    int to = -1;
    memset(&hints, 0, sizeof hints);
    hints.ai_socktype = SOCK_STREAM;
    if (getaddrinfo(server, port, &hints, &found) != 0)
        return -1;
    for (each = found; each && to < 0; each = each->ai_next) {
        to = socket(each->ai_family, each->ai_socktype, each->ai_protocol);
        if (to >= 0 && connect(to, each->ai_addr, each->ai_addrlen) != 0) {
            close(to);
            to = -1;
        }
    }
    freeaddrinfo(found);
    return to;
}

/* Ask the server, and return the status of its answer; 0 if there is none. A real device reads the answer, too. */
static int offload(unsigned int bin, long local, const char *inputs)
{
    static const char head[] = "POST /v2/models/%s/infer HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
                               "Content-Type: application/json\r\nContent-Length: %d\r\n\r\n";
    static const char body[] = "{\"parameters\":{\"hinge_kind\":\"%s\",\"hinge_device\":\"%s\",\"hinge_bin\":%u,"
                               "\"hinge_local\":%ld,\"hinge_accepted\":%u},\"inputs\":%s}";
    const int length = snprintf(NULL, 0, body, kind, device, bin, local, (unsigned int)gate.accepted, inputs);
    int written = snprintf(request, sizeof request, head, model, length), status = 0;
    const int to = connected();
    size_t sent = 0, total;
    char answer[4096];
    ssize_t got;
    if (to < 0 || written < 0 || length < 0 || (size_t)written + (size_t)length >= sizeof request) {
        if (to >= 0)
            close(to);
        return 0;
    }
    total = (size_t)(written + length);
    snprintf(request + written, sizeof request - (size_t)written, body, kind, device, bin, local,
             (unsigned int)gate.accepted, inputs);
    while (sent < total && (got = send(to, request + sent, total - sent, 0)) > 0)
        sent += (size_t)got;
    got = recv(to, answer, sizeof answer - 1, 0);
    if (got > 0) {
        answer[got] = '\0';
        if (sscanf(answer, "HTTP/1.%*1d %3d", &status) != 1)
            status = 0;
    }
    while (got > 0)
        got = recv(to, answer, sizeof answer, 0);
    close(to);
    return status;
}

static void play(void)
{
    unsigned int bin;
    long local;
    int end = 0;
    if (sscanf(line, "%u %ld %n", &bin, &local, &end) < 2 || bin > 255) {
        fprintf(stderr, "not a bin and a class: %.40s\n", line);
        return;
    }
    if (hinge_decide(&gate, (uint8_t)bin)) {
        const unsigned int accepted = gate.accepted;
        const int status = line[end] ? offload(bin, local, line + end) : 0;
        printf("offload %u %ld %u %d\n", bin, local, accepted, status);
    } else {
        printf("accept %u %ld\n", bin, local);
    }
    fflush(stdout);
}

int main(int count, char **arguments)
{
    struct mosquitto *client;
    if (count != 9) {
        fprintf(stderr, "usage: %s BROKER PORT FLEET KIND DEVICE SERVER PORT MODEL < samples\n", arguments[0]);
        return 2;
    }
    fleet = arguments[3], kind = arguments[4], device = arguments[5];
    server = arguments[6], port = arguments[7], model = arguments[8];
    mosquitto_lib_init();
    client = mosquitto_new(NULL, true, NULL);
    if (!client)
        return 1;
    mosquitto_connect_callback_set(client, on_connect);
    mosquitto_message_callback_set(client, on_message);
    if (mosquitto_connect(client, arguments[1], atoi(arguments[2]), 30) != MOSQ_ERR_SUCCESS) {
        fprintf(stderr, "no broker at %s:%s\n", arguments[1], arguments[2]);
        return 1;
    }
    setvbuf(stdin, NULL, _IONBF, 0); /* or poll would not see what was read ahead */
    for (;;) {
        struct pollfd ready[2];
        ready[0].fd = STDIN_FILENO, ready[1].fd = mosquitto_socket(client);
        ready[0].events = ready[1].events = POLLIN;
        if (poll(ready, ready[1].fd < 0 ? 1 : 2, 1000) < 0)
            break;
        mosquitto_loop(client, 0, 1); /* without a broker the device goes on, until its licences end */
        if (ready[0].revents) {
            if (!fgets(line, sizeof line, stdin))
                break;
            play();
        }
    }
    mosquitto_destroy(client);
    mosquitto_lib_cleanup();
    return 0;
}
