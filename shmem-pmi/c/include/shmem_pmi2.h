/* PMI-2 for C, and the extensions of "Non-blocking PMI Extensions for Fast MPI Startup": libshmem_pmi2.
   Names, types and numbers are those of pmi2.h, which MPICH and Slurm have; include one of the two. */
#ifndef SHMEM_PMI2_H
#define SHMEM_PMI2_H

/* Most bytes of a key and of a value, with the final NUL. */
#define PMI2_MAX_KEYLEN 64
#define PMI2_MAX_VALLEN 1024
#define PMI2_MAX_ATTRVALUE 1024

/* src_pmi_id of PMI2_KVS_Get where it is not known who has put the key. */
#define PMI2_ID_NULL -1

/* What functions return. The reason of a failure is told on standard error, each reason once. */
#define PMI2_SUCCESS 0
#define PMI2_FAIL -1                  /* the server refuses, or is gone */
#define PMI2_ERR_INIT 1               /* before PMI2_Init, or after PMI2_Finalize */
#define PMI2_ERR_NOMEM 2              /* a buffer is too short; what fits has been written */
#define PMI2_ERR_INVALID_ARG 3        /* a null pointer, no such request, another job */
#define PMI2_ERR_INVALID_KEY 4        /* bytes that the server could not carry */
#define PMI2_ERR_INVALID_KEY_LENGTH 5
#define PMI2_ERR_INVALID_VAL 6        /* empty, or bytes that the server could not carry */
#define PMI2_ERR_INVALID_VAL_LENGTH 7
#define PMI2_ERR_INVALID_LENGTH 8     /* of a buffer or an array */
#define PMI2_ERR_INVALID_NUM_ARGS 9
#define PMI2_ERR_INVALID_ARGS 10
#define PMI2_ERR_INVALID_NUM_PARSED 11
#define PMI2_ERR_INVALID_KEYVALP 12
#define PMI2_ERR_INVALID_SIZE 13
#define PMI2_ERR_OTHER 14             /* a mistake of the library's own */

#ifdef __cplusplus
extern "C" {
#endif

/* Of PMI2_Nameserv_*, which do not look at it. */
struct MPID_Info;

/* The job. PMI2_Abort ends it, or with flag 0 this process, and returns only before PMI2_Init.
   PMI2_Info_GetSize gives the number of processes on this node. */
int PMI2_Init(int *spawned, int *size, int *rank, int *appnum);
int PMI2_Initialized(void);
int PMI2_Finalize(void);
int PMI2_Abort(int flag, const char msg[]);
int PMI2_Job_GetId(char jobid[], int jobid_size);
int PMI2_Job_GetRank(int *rank);
int PMI2_Info_GetSize(int *size);

/* The key-value space. A pair is visible to all when a fence that all processes have joined after its put is
   complete. PMI2_KVS_Get fails, and says nothing, where there is no such key; of a value that is longer than the buffer
   it gives the beginning, and in vallen its length, negative. */
int PMI2_KVS_Put(const char key[], const char value[]);
int PMI2_KVS_Fence(void);
int PMI2_KVS_Get(const char *jobid, int src_pmi_id, const char key[], char value[], int maxvalue, int *vallen);

/* Attributes of the node, which its processes tell each other without a fence, and of the job. */
int PMI2_Info_PutNodeAttr(const char name[], const char value[]);
int PMI2_Info_GetNodeAttr(const char name[], char value[], int valuelen, int *found, int waitfor);
int PMI2_Info_GetNodeAttrIntArray(const char name[], int array[], int arraylen, int *outlen, int *found);
int PMI2_Info_GetJobAttr(const char name[], char value[], int valuelen, int *found);
int PMI2_Info_GetJobAttrIntArray(const char name[], int array[], int arraylen, int *outlen, int *found);

/* Names of services, for other jobs. */
int PMI2_Nameserv_publish(const char service_name[], const struct MPID_Info *info_ptr, const char port[]);
int PMI2_Nameserv_lookup(const char service_name[], const struct MPID_Info *info_ptr, char port[], int portLen);
int PMI2_Nameserv_unpublish(const char service_name[], const struct MPID_Info *info_ptr);

/* The extensions. All processes call them, PMIX_Wait and PMIX_Test excepted, in the same order; fences count. */
#define HAVE_PMIX_RING 1
#define HAVE_PMIX_ALLGATHER 1
#define HAVE_PMIX_IALLGATHER 1
#define HAVE_PMIX_IFENCE 1

/* An operation under way (section IV.B). It is the library's: PMIX_Wait frees it. */
typedef struct PMIX_Request_s *PMIX_Request;

/* Section IV.A: the value of each process, padded with NULs to PMI2_MAX_VALLEN bytes, in the order of ranks: that of
   rank r lies at r * PMI2_MAX_VALLEN. */
int PMIX_Allgather(const char value[], void *buffer);
/* The same section's optimization: values have at most maxvalue bytes with their NUL, which is the same number
   everywhere, and lie at r * maxvalue. */
int PMIX_Allgather_max(const char value[], void *buffer, int maxvalue);

/* Section IV.D. The value may be changed at once; the buffer must not be touched before PMIX_Wait has returned. */
int PMIX_Iallgather(const char value[], void *buffer, PMIX_Request *request_ptr);
int PMIX_Iallgather_max(const char value[], void *buffer, int maxvalue, PMIX_Request *request_ptr);

/* Section IV.E. Keys must not be got before PMIX_Wait has returned. */
int PMIX_KVS_Ifence(PMIX_Request *request_ptr);

/* Section IV.C. Each request is waited for once, by one thread. */
int PMIX_Wait(PMIX_Request request);
/* Not of the paper: whether PMIX_Wait would return without waiting for others. It has to be called nevertheless. */
int PMIX_Test(PMIX_Request request, int *flag);

/* "PMI Extensions for Scalable MPI Startup", as Slurm has it: the place of this process in a ring of all, and what
   the one before it and the one behind it have given. maxvalue is the length of both buffers. */
int PMIX_Ring(const char value[], int *rank, int *ranks, char left[], char right[], int maxvalue);

#ifdef __cplusplus
}
#endif

#endif
