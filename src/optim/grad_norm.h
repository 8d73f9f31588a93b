/* The partials of the gradient norm over all ranks: which there are, and in which order they are
 * added. Internal to the optimizer. */
#ifndef OCT_OPTIM_GRAD_NORM_H
#define OCT_OPTIM_GRAD_NORM_H

#include "optim/optimizer.h"

/* Makes the workspace of oct_optimizer_grad_norm from the slots. Collective if there is a comm.
 * Errors: OCT_E_API naming a parameter whose rows are not cut as oct_optimizer_create requires,
 * OCT_E_NOMEM; on every rank if on one. oct_norm_release follows also then. */
oct_status oct_norm_prepare(oct_optimizer *optimizer, oct_err *err) OCT_MUST_CHECK;

void oct_norm_release(oct_optimizer *optimizer);

#endif
