/* Stands in for cuDNN: the same functions with the same arguments, on the host's memory, in float.
   The definition of a convolution serves as every algorithm but those that are to fail. */

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

enum { SUCCESS = 0, BAD_PARAM = 2000, NOT_SUPPORTED = 3000, EXECUTION_FAILED = 5000 };

typedef struct { int type, n, c, h, w, sn, sc, sh, sw; } Tensor;
typedef struct { int type, format, k, c, h, w; } Filter;
typedef struct { int pad_h, pad_w, stride_h, stride_w, dil_h, dil_w, mode, compute, groups, math; } Convolution;
typedef struct { int algo, status; float time; size_t memory; int determinism, math; int reserved[3]; } Perf;

/* What tests look at. */
int fake_alive = 0;       /* descriptors that were created and not destroyed */
int fake_last_math = -1;
int fake_last_algo = -1;
void *fake_stream = 0;
size_t fake_workspace = 4096; /* what algorithm 1 asks for */
int fake_failing = -1;    /* the algorithm that fails when it runs */

const char *cudnnGetErrorString(int status) {
    switch (status) {
        case SUCCESS: return "CUDNN_STATUS_SUCCESS";
        case BAD_PARAM: return "CUDNN_STATUS_BAD_PARAM";
        case NOT_SUPPORTED: return "CUDNN_STATUS_NOT_SUPPORTED";
        case EXECUTION_FAILED: return "CUDNN_STATUS_EXECUTION_FAILED";
        default: return "CUDNN_UNKNOWN_STATUS";
    }
}

int cudnnCreate(void **handle) { *handle = malloc(8); return SUCCESS; }
int cudnnDestroy(void *handle) { free(handle); return SUCCESS; }
int cudnnSetStream(void *handle, void *stream) { fake_stream = stream; return handle ? SUCCESS : BAD_PARAM; }

#define DESCRIPTOR(kind, type) \
    int cudnnCreate##kind(void **made) { *made = calloc(1, sizeof(type)); fake_alive++; return SUCCESS; } \
    int cudnnDestroy##kind(void *made) { free(made); fake_alive--; return SUCCESS; }
DESCRIPTOR(TensorDescriptor, Tensor)
DESCRIPTOR(FilterDescriptor, Filter)
DESCRIPTOR(ConvolutionDescriptor, Convolution)

int cudnnSetTensor4dDescriptorEx(Tensor *t, int type, int n, int c, int h, int w, int sn, int sc, int sh, int sw) {
    if (n < 1 || c < 1 || h < 1 || w < 1) return BAD_PARAM;
    *t = (Tensor){type, n, c, h, w, sn, sc, sh, sw};
    return SUCCESS;
}

int cudnnSetFilter4dDescriptor(Filter *f, int type, int format, int k, int c, int h, int w) {
    *f = (Filter){type, format, k, c, h, w};
    return SUCCESS;
}

int cudnnSetConvolution2dDescriptor(
    Convolution *c, int pad_h, int pad_w, int u, int v, int dil_h, int dil_w, int mode, int compute) {
    *c = (Convolution){pad_h, pad_w, u, v, dil_h, dil_w, mode, compute, 1, 0};
    return SUCCESS;
}

int cudnnSetConvolutionGroupCount(Convolution *c, int groups) { c->groups = groups; return SUCCESS; }
int cudnnSetConvolutionMathType(Convolution *c, int math) { c->math = fake_last_math = math; return SUCCESS; }

static int fits(const Tensor *x, const Filter *w, const Convolution *c, const Tensor *y) {
    int reach_h = (w->h - 1) * c->dil_h + 1, reach_w = (w->w - 1) * c->dil_w + 1;
    return c->mode == 1 && x->n == y->n && w->k == y->c && w->c * c->groups == x->c
        && y->h == (x->h + 2 * c->pad_h - reach_h) / c->stride_h + 1
        && y->w == (x->w + 2 * c->pad_w - reach_w) / c->stride_w + 1;
}

/* Algorithm 2 and above need stride 1, like those of transforms; algorithm 3 there is none. */
static int able(const Convolution *c, int algo) {
    if (algo == 3 || (algo >= 2 && (c->stride_h > 1 || c->stride_w > 1))) return NOT_SUPPORTED;
    return SUCCESS;
}

static int size_of(const Tensor *x, const Filter *w, const Convolution *c, const Tensor *y, int algo, size_t *size) {
    if (!fits(x, w, c, y)) return BAD_PARAM;
    *size = algo == 1 ? fake_workspace : 0;
    return able(c, algo);
}

static size_t at(const Tensor *t, int n, int c, int h, int w) {
    return (size_t)n * t->sn + (size_t)c * t->sc + (size_t)h * t->sh + (size_t)w * t->sw;
}

static size_t at_filter(const Filter *f, int k, int c, int h, int w) {
    if (f->format == 0) return (((size_t)k * f->c + c) * f->h + h) * f->w + w;
    return (((size_t)k * f->h + h) * f->w + w) * f->c + c;
}

/* pass 0: y from x and w; 1: x from w and y; 2: w from x and y */
static int convolve(
    int pass, const Tensor *xd, float *x, const Filter *wd, float *w, const Convolution *c, const Tensor *yd, float *y,
    int algo, void *workspace, size_t size, const float *alpha, const float *beta) {
    size_t wanted;
    int status = size_of(xd, wd, c, yd, algo, &wanted);
    fake_last_algo = algo;
    if (status) return status;
    if (size < wanted || (wanted && !workspace) || *alpha != 1.0f || *beta != 0.0f) return BAD_PARAM;
    if (workspace) memset(workspace, 7, size);
    if (algo == fake_failing) return EXECUTION_FAILED;
    int fan_in = wd->c, fan_out = wd->k / c->groups;
    for (int n = 0; pass == 1 && n < xd->n; n++)
        for (int i = 0; i < xd->c; i++)
            for (int h = 0; h < xd->h; h++)
                for (int v = 0; v < xd->w; v++) x[at(xd, n, i, h, v)] = 0;
    if (pass == 2) memset(w, 0, sizeof(float) * wd->k * wd->c * wd->h * wd->w);
    for (int n = 0; n < yd->n; n++)
        for (int k = 0; k < yd->c; k++)
            for (int p = 0; p < yd->h; p++)
                for (int q = 0; q < yd->w; q++) {
                    float sum = 0;
                    for (int i = 0; i < fan_in; i++)
                        for (int r = 0; r < wd->h; r++)
                            for (int s = 0; s < wd->w; s++) {
                                int h = p * c->stride_h - c->pad_h + r * c->dil_h;
                                int v = q * c->stride_w - c->pad_w + s * c->dil_w;
                                if (h < 0 || v < 0 || h >= xd->h || v >= xd->w) continue;
                                float *px = &x[at(xd, n, k / fan_out * fan_in + i, h, v)];
                                float *pw = &w[at_filter(wd, k, i, r, s)];
                                float up = pass ? y[at(yd, n, k, p, q)] : 0;
                                if (pass == 0) sum += *px * *pw;
                                if (pass == 1) *px += *pw * up;
                                if (pass == 2) *pw += *px * up;
                            }
                    if (pass == 0) y[at(yd, n, k, p, q)] = sum;
                }
    return SUCCESS;
}

int cudnnConvolutionForward(
    void *handle, const float *alpha, Tensor *xd, float *x, Filter *wd, float *w, Convolution *c, int algo,
    void *workspace, size_t size, const float *beta, Tensor *yd, float *y) {
    return convolve(0, xd, x, wd, w, c, yd, y, algo, workspace, size, alpha, beta);
}

int cudnnConvolutionBackwardData(
    void *handle, const float *alpha, Filter *wd, float *w, Tensor *yd, float *y, Convolution *c, int algo,
    void *workspace, size_t size, const float *beta, Tensor *xd, float *x) {
    return convolve(1, xd, x, wd, w, c, yd, y, algo, workspace, size, alpha, beta);
}

int cudnnConvolutionBackwardFilter(
    void *handle, const float *alpha, Tensor *xd, float *x, Tensor *yd, float *y, Convolution *c, int algo,
    void *workspace, size_t size, const float *beta, Filter *wd, float *w) {
    return convolve(2, xd, x, wd, w, c, yd, y, algo, workspace, size, alpha, beta);
}

int cudnnGetConvolutionForwardWorkspaceSize(
    void *handle, Tensor *x, Filter *w, Convolution *c, Tensor *y, int algo, size_t *size) {
    return size_of(x, w, c, y, algo, size);
}

int cudnnGetConvolutionBackwardDataWorkspaceSize(
    void *handle, Filter *w, Tensor *y, Convolution *c, Tensor *x, int algo, size_t *size) {
    return size_of(x, w, c, y, algo, size);
}

int cudnnGetConvolutionBackwardFilterWorkspaceSize(
    void *handle, Tensor *x, Tensor *y, Convolution *c, Filter *w, int algo, size_t *size) {
    return size_of(x, w, c, y, algo, size);
}

/* The first guess cannot be run, the second can. */
static int guess(int status, int wanted, int *given, Perf *found) {
    if (status) return status;
    if (wanted < 2) return BAD_PARAM;
    found[0] = (Perf){.algo = 3, .status = NOT_SUPPORTED};
    found[1] = (Perf){.algo = 1, .status = SUCCESS, .time = -1, .memory = fake_workspace};
    *given = 2;
    return SUCCESS;
}

int cudnnGetConvolutionForwardAlgorithm_v7(
    void *handle, Tensor *x, Filter *w, Convolution *c, Tensor *y, int wanted, int *given, Perf *found) {
    return guess(fits(x, w, c, y) ? SUCCESS : BAD_PARAM, wanted, given, found);
}

int cudnnGetConvolutionBackwardDataAlgorithm_v7(
    void *handle, Filter *w, Tensor *y, Convolution *c, Tensor *x, int wanted, int *given, Perf *found) {
    return guess(fits(x, w, c, y) ? SUCCESS : BAD_PARAM, wanted, given, found);
}

int cudnnGetConvolutionBackwardFilterAlgorithm_v7(
    void *handle, Tensor *x, Tensor *y, Convolution *c, Filter *w, int wanted, int *given, Perf *found) {
    return guess(fits(x, w, c, y) ? SUCCESS : BAD_PARAM, wanted, given, found);
}
