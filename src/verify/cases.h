/* The cases of chapter 17.2 and 17.3.1, and those around them (docs/verify.md). */
#ifndef OCT_VERIFY_CASES_H
#define OCT_VERIFY_CASES_H

#include "verify/verify.h"

oct_status oct_verify_q3_01(oct_verify *v, json_t *result, oct_err *err) OCT_MUST_CHECK;
oct_status oct_verify_q3_02(oct_verify *v, json_t *result, oct_err *err) OCT_MUST_CHECK;
oct_status oct_verify_q3_03(oct_verify *v, json_t *result, oct_err *err) OCT_MUST_CHECK;
oct_status oct_verify_q3_04(oct_verify *v, json_t *result, oct_err *err) OCT_MUST_CHECK;
oct_status oct_verify_q3_05(oct_verify *v, json_t *result, oct_err *err) OCT_MUST_CHECK;
oct_status oct_verify_q3_06(oct_verify *v, json_t *result, oct_err *err) OCT_MUST_CHECK;
oct_status oct_verify_q3_07(oct_verify *v, json_t *result, oct_err *err) OCT_MUST_CHECK;
oct_status oct_verify_q3_08(oct_verify *v, json_t *result, oct_err *err) OCT_MUST_CHECK;
oct_status oct_verify_q3_09(oct_verify *v, json_t *result, oct_err *err) OCT_MUST_CHECK;

/* The combinations of 17.1's fixed dimensions. */
oct_status oct_verify_combinations(oct_verify *v, json_t *result, oct_err *err) OCT_MUST_CHECK;

/* The list of HiF8 (17.3.1). */
oct_status oct_verify_hif8(oct_verify *v, json_t *result, oct_err *err) OCT_MUST_CHECK;

/* Work that is done twice, in every run that was made (17.4f). */
oct_status oct_verify_duplicates(oct_verify *v, json_t *result, oct_err *err) OCT_MUST_CHECK;

/* One format of one configuration file (16.6). */
oct_status oct_verify_one_format(oct_verify *v, json_t *result, oct_err *err) OCT_MUST_CHECK;

/* What the plan of the model decides, without weights. */
oct_status oct_verify_dry_run(oct_verify *v, json_t *result, oct_err *err) OCT_MUST_CHECK;

/* Errors: OCT_E_CONFIG if the rules of --config replace other modules than the cases judge;
 * OCT_E_NOMEM, with the GiB found and required, if this machine cannot train the model. */
oct_status oct_verify_check_plan(oct_verify *v, oct_err *err) OCT_MUST_CHECK;

#endif
