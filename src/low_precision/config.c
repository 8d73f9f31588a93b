#include "low_precision/config.h"

#include <string.h>

#include "base/fault.h"

#include "low_precision/hif8/hif8.h"
#include "low_precision/mxfp8/mxfp8.h"

const oct_low_precision_format *const oct_low_precision_formats[] = {
    &oct_mxfp8_format,
    &oct_hif8_format,
    NULL,
};

static const oct_low_precision_format *find_format(const char *name)
{
    for (int i = 0; oct_low_precision_formats[i]; i++)
        if (strcmp(oct_low_precision_formats[i]->name, name) == 0)
            return oct_low_precision_formats[i];
    return NULL;
}

/* The scaling that some format goes with? */
static bool is_scaling(const char *name)
{
    for (int i = 0; oct_low_precision_formats[i]; i++)
        if (strcmp(oct_low_precision_formats[i]->scaling, name) == 0)
            return true;
    return false;
}

oct_status oct_low_precision_policy_make(bool enabled, const char *format, const char *scaling,
                                         oct_low_precision_policy *policy, oct_err *err)
{
    const char *keys = "low_precision.format, low_precision.scaling";
    const oct_low_precision_format *found = find_format(format);
    if (!found)
        return OCT_FAIL(err, OCT_E_CONFIG,
                        "cannot set up low precision: format '%s' with scaling '%s', mxfp8_e4m3 "
                        "with mx_block or hif8 with current is required (%s)",
                        format, scaling, keys);
    if (strcmp(scaling, "delayed") == 0)
        return OCT_FAIL(err, OCT_E_UNSUPPORTED,
                        "cannot set up low precision: format '%s' with scaling 'delayed' is "
                        "unsupported, '%s' is required (%s)",
                        format, found->scaling, keys);
    if (strcmp(scaling, found->scaling) != 0)
        return OCT_FAIL(err, OCT_E_CONFIG,
                        "cannot set up low precision: format '%s' with %s '%s', scaling '%s' is "
                        "required (%s)",
                        format, is_scaling(scaling) ? "scaling" : "unknown scaling", scaling,
                        found->scaling, keys);
    *policy = (oct_low_precision_policy){0};
    if (enabled)
        *policy = oct_low_precision_policy_of(found->recipe);
    return OCT_OK;
}

oct_low_precision_policy oct_low_precision_policy_of(const oct_low_precision_recipe *recipe)
{
    return (oct_low_precision_policy){
        .enabled = true,
        .format = oct_recipe_quantizer(recipe, OCT_ROLE_INPUT_FWD)->format,
        .recipe = recipe,
    };
}

oct_status oct_gate_require(const oct_kernels *kernels, const oct_gate_kernel *needed, int count,
                            oct_err *err)
{
    for (int i = 0; i < count; i++)
        if (!needed[i].present || oct_fault(needed[i].fault))
            return OCT_FAIL(err, OCT_E_UNSUPPORTED,
                            "kernel '%s' (%s) is missing in the table of '%s', it is required",
                            needed[i].name, needed[i].duty, oct_isa_name(kernels->isa));
    return OCT_OK;
}

oct_status oct_low_precision_gate(const oct_low_precision_policy *policy,
                                  const oct_kernels *kernels, const char *device, oct_err *err)
{
    if (!policy->enabled)
        return OCT_OK;
    if (strcmp(device, "cpu") != 0)
        return OCT_FAIL(
            err, OCT_E_UNSUPPORTED,
            "cannot start low precision: [MXFP8/HiF8] is only supported on Ascend950 or "
            "higher architecture. Device '%s' has no backend here, 'cpu' is required "
            "(device)",
            device);
    const oct_status status = policy->format->gate(kernels, err);
    return status == OCT_OK
               ? status
               : OCT_WRAP(err, status, "capability gate of '%s' (low_precision.format)",
                          policy->format->name);
}
