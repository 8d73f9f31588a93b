"""What the check programs share: counting comparisons by subject, and the first differences."""
import sys


class Check:
    """Counts comparisons. The program fails if one differs or if a subject compared nothing."""

    def __init__(self, *subjects):
        self.counts = {subject: [0, 0] for subject in subjects}

    def same(self, subject, where, found, required):
        count = self.counts[subject]
        count[0] += 1
        if found != required:
            count[1] += 1
            if count[1] <= 5:
                print(f"{subject}: {where}: found {found}, {required} is required")

    def require(self, subject, where, condition):
        self.same(subject, where, bool(condition), True)

    def end(self):
        for subject, (compared, wrong) in self.counts.items():
            print(f"{subject}: {compared} compared, {wrong} differ")
        bad = [s for s, (compared, wrong) in self.counts.items() if wrong or not compared]
        sys.exit(f"wrong, or without any data: {', '.join(bad)}" if bad else 0)
