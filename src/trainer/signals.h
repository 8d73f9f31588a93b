/* SIGINT, SIGTERM, SIGHUP and SIGUSR1 (which mpirun forwards to its ranks and batch systems send
 * ahead of a time limit) ask a run to stop: the step in progress ends, a checkpoint is saved.
 */
#ifndef OCT_TRAINER_SIGNALS_H
#define OCT_TRAINER_SIGNALS_H

/* Installs the handlers; a second signal of the same kind ends the process at once. A SIGHUP that
 * is ignored (nohup) stays ignored. Several runs of one process (ranks of a team) share the
 * handlers: the first installs them, the last restores. */
void oct_signals_install(void);

/* The handlers that were there before come back. */
void oct_signals_restore(void);

/* 0, or the number of the signal that arrived first. */
int oct_signals_pending(void);

#endif
