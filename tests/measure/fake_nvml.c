/* Two boards that answer as NVML does, scripted through these variables; -DOLD_DRIVER leaves only the older names. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef unsigned long long u64;
typedef struct { u64 total, free, used; } memory_t;
typedef struct { unsigned version; u64 total, reserved, free, used; } memory_in_parts_t;
typedef struct { unsigned gpu, memory; } utilization_t;
typedef struct { u64 reference_us, violation_ns; } violation_t;
typedef struct { unsigned pid; u64 used_bytes; unsigned gpu_instance, compute_instance; } process_t;

enum { OK = 0, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NO_PERMISSION = 4, INSUFFICIENT_SIZE = 7, DRIVER_NOT_LOADED = 9 };

u64 fake_users, fake_init_status, fake_energy_status, fake_energy_mj, fake_clock_mhz, fake_reasons;
u64 fake_power_ns, fake_thermal_ns, fake_processes, fake_first_pid;
u64 fake_drawing, fake_used_bytes, fake_utilization, fake_busy_looks, fake_mig_status, fake_mig, fake_instance;
static int boards[2];

void fake_reset(void) {
    fake_users = fake_init_status = fake_energy_status = fake_reasons = 0;
    fake_power_ns = fake_thermal_ns = fake_processes = 0;
    fake_drawing = fake_used_bytes = fake_mig_status = fake_mig = fake_instance = 0;
    fake_utilization = 97;
    fake_busy_looks = ~0ULL;
    fake_energy_mj = 5000;
    fake_clock_mhz = 1980;
    fake_first_pid = 1000;
}

/* For a process of its own, which finds it as libnvidia-ml.so.1 and cannot set the variables. */
__attribute__((constructor)) static void take_from_environment(void) {
    const char *busy = getenv("FAKE_NVML_UTILIZATION"), *processes = getenv("FAKE_NVML_PROCESSES");
    fake_reset();
    fake_utilization = busy ? strtoull(busy, NULL, 10) : 0;
    fake_processes = processes ? strtoull(processes, NULL, 10) : 0;
}

/* A board's power limit is in a file, since processes set it and others put it back: FAKE_NVML_POWER names it. */
static const unsigned power_at_first_mw = 700000;
int nvmlDeviceGetPowerManagementLimit(void *board, unsigned *limit_mw) {
    const char *path = getenv("FAKE_NVML_POWER");
    FILE *file = path ? fopen(path, "r") : NULL;
    *limit_mw = power_at_first_mw;
    if (file) { if (fscanf(file, "%u", limit_mw) != 1) *limit_mw = power_at_first_mw; fclose(file); }
    return OK;
}
int nvmlDeviceSetPowerManagementLimit(void *board, unsigned limit_mw) {
    const char *path = getenv("FAKE_NVML_POWER");
    FILE *file;
    if (!path) return NO_PERMISSION;
    if (limit_mw < 200000 || limit_mw > power_at_first_mw) return INVALID_ARGUMENT;
    file = fopen(path, "w");
    fprintf(file, "%u", limit_mw);
    fclose(file);
    return OK;
}

const char *nvmlErrorString(int status) {
    return status == INVALID_ARGUMENT ? "Invalid Argument"
         : status == NOT_SUPPORTED ? "Not Supported"
         : status == NO_PERMISSION ? "Insufficient Permissions"
         : status == DRIVER_NOT_LOADED ? "Driver Not Loaded" : "Unknown Error";
}

int nvmlInitWithFlags(unsigned flags) {
    if (fake_init_status == OK) fake_users++;
    return (int)fake_init_status;
}
int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
int nvmlShutdown(void) { fake_users--; return OK; }

int nvmlSystemGetDriverVersion(char *text, unsigned size) { strncpy(text, "580.159.04", size); return OK; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = 2; return OK; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **board) {
    if (index > 1) return INVALID_ARGUMENT;
    *board = &boards[index];
    return OK;
}
int nvmlDeviceGetHandleByUUID(const char *uuid, void **board) {
    if (!fake_instance && !strcmp(uuid, "GPU-74c2-0")) { *board = &boards[0]; return OK; }
    if (strcmp(uuid, fake_instance ? "MIG-74c2-1" : "GPU-74c2-1")) return INVALID_ARGUMENT;
    *board = &boards[1];
    return OK;
}
int nvmlDeviceGetName(void *board, char *text, unsigned size) { strncpy(text, "NVIDIA Fake", size); return OK; }
int nvmlDeviceGetUUID(void *board, char *text, unsigned size) {
    strncpy(text, board == &boards[1] ? "GPU-74c2-1" : "GPU-74c2-0", size);
    return OK;
}
int nvmlDeviceGetMemoryInfo(void *board, memory_t *memory) { memory->total = 150754820096ULL; return OK; }
int nvmlDeviceGetTotalEnergyConsumption(void *board, u64 *energy_mj) {
    *energy_mj = fake_energy_mj;
    return (int)fake_energy_status;
}
int nvmlDeviceGetClockInfo(void *board, unsigned kind, unsigned *mhz) {
    *mhz = (unsigned)fake_clock_mhz;
    return kind == 1 ? OK : INVALID_ARGUMENT;
}
int nvmlDeviceGetMaxClockInfo(void *board, unsigned kind, unsigned *mhz) {
    *mhz = 1980;
    return kind == 1 ? OK : INVALID_ARGUMENT;
}
int nvmlDeviceGetCudaComputeCapability(void *board, int *major, int *minor) { *major = 9; *minor = 0; return OK; }
#ifndef OLD_DRIVER
int nvmlDeviceGetNumGpuCores(void *board, unsigned *cores) { *cores = 16896; return OK; }
#endif
int nvmlDeviceGetUtilizationRates(void *board, utilization_t *rates) {
    rates->gpu = fake_busy_looks ? (unsigned)fake_utilization : 0;
    if (fake_busy_looks) fake_busy_looks--;
    return OK;
}
int nvmlDeviceIsMigDeviceHandle(void *board, unsigned *inside) { *inside = (unsigned)fake_instance; return OK; }
int nvmlDeviceGetMigMode(void *board, unsigned *current, unsigned *pending) {
    *current = *pending = (unsigned)fake_mig;
    return (int)fake_mig_status;
}
int nvmlDeviceGetMemoryInfo_v2(void *board, memory_in_parts_t *memory) {
    if (memory->version != (sizeof *memory | 2 << 24)) return INVALID_ARGUMENT;
    memory->used = fake_used_bytes;
    return OK;
}
int nvmlDeviceGetViolationStatus(void *board, unsigned policy, violation_t *violation) {
    violation->violation_ns = policy == 0 ? fake_power_ns : fake_thermal_ns;
    return OK;
}

#ifdef OLD_DRIVER
#define REASONS nvmlDeviceGetCurrentClocksThrottleReasons
#define PROCESSES nvmlDeviceGetComputeRunningProcesses_v2
#define DRAWING nvmlDeviceGetGraphicsRunningProcesses_v2
#else
#define REASONS nvmlDeviceGetCurrentClocksEventReasons
#define PROCESSES nvmlDeviceGetComputeRunningProcesses_v3
#define DRAWING nvmlDeviceGetGraphicsRunningProcesses_v3
#endif

int REASONS(void *board, u64 *mask) { *mask = fake_reasons; return OK; }
static int list(u64 processes, u64 first_pid, unsigned *count, process_t *found) {
    unsigned room = *count;
    *count = (unsigned)processes;
    if (room < processes) return INSUFFICIENT_SIZE;
    for (unsigned i = 0; i < processes; i++) found[i].pid = (unsigned)first_pid + i;
    return OK;
}
int PROCESSES(void *board, unsigned *count, process_t *found) {
    return list(fake_processes, fake_first_pid, count, found);
}
int DRAWING(void *board, unsigned *count, process_t *found) { return list(fake_drawing, 2000, count, found); }
