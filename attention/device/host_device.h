// Marks plain arithmetic that runs on the host and on the device, so it can be tested without a
// GPU.
#ifndef ATTENTION_DEVICE_HOST_DEVICE_H_
#define ATTENTION_DEVICE_HOST_DEVICE_H_

#ifdef __CUDACC__
#define ATTNLAB_HOST_DEVICE __host__ __device__
#else
#define ATTNLAB_HOST_DEVICE
#endif

#endif  // ATTENTION_DEVICE_HOST_DEVICE_H_
