package config

import (
	"errors"
	"fmt"
	"time"

	"sexton/internal/bucketurl"
	"sexton/internal/definitions"
)

// A run ends 5 s before its lease does, and no kind runs longer than a minute.
const (
	shortestLease = 10 * time.Second
	longestLease  = time.Minute
	// mostAttempts bounds the stretches of the index of placeholder users that are looked at one by one.
	mostAttempts = 100
	// shortestGrace is much more than a move takes.
	shortestGrace = time.Hour
)

// components checks the sections of the jobs that are off by default.
func (v *validator) components() {
	c := v.config
	v.schedule("ghost_users.schedule", c.GhostUsers.Schedule)
	v.schedule("placeholder_users.schedule", c.PlaceholderUsers.Schedule)
	v.schedule("adjourned_groups.schedule", c.AdjournedGroups.Schedule)
	v.schedule("external_diffs.schedule", c.ExternalDiffs.Schedule)

	v.positive("ghost_users.limit", c.GhostUsers.Limit)
	if r := c.GhostUsers.MaxRuntime; r < shortestLease || r > longestLease {
		v.fail("ghost_users.max_runtime", fmt.Sprintf("must be between %s and %s", shortestLease, longestLease), "")
	}
	for name, rows := range map[string]int{"move": c.GhostUsers.Batches.Move, "delete": c.GhostUsers.Batches.Delete, "nullify": c.GhostUsers.Batches.Nullify} {
		v.positive("ghost_users.batches."+name, rows)
	}
	if t := c.GhostUsers.Target; t != 0 && (t < shortestTarget || t > longestTarget) {
		v.fail("ghost_users.target", fmt.Sprintf("must be 0s, or between %s and %s", shortestTarget, longestTarget), "")
	}
	if c.GhostUsers.Duty < 1 || c.GhostUsers.Duty > 100 {
		v.fail("ghost_users.duty", "must be a percentage from 1 to 100", "")
	}
	v.longerThanZero("ghost_users.retry_after", c.GhostUsers.RetryAfter)
	for i, entry := range c.GhostUsers.Move {
		v.tableColumns(fmt.Sprintf("ghost_users.move[%d]", i), TableColumns{Table: entry.Table, Columns: entry.Columns})
	}
	for i, entry := range c.GhostUsers.Delete {
		key := fmt.Sprintf("ghost_users.delete[%d]", i)
		v.tableColumns(key, TableColumns{Table: entry.Table, Columns: entry.Columns})
		if entry.CleanerClass != "" && entry.CleanerClass != definitions.ArtifactsCleaner {
			v.fail(key+".cleaner_class", "must be "+definitions.ArtifactsCleaner, "write event: true, which does the same")
		}
	}
	v.columnLists("ghost_users.nullify", c.GhostUsers.Nullify)

	if c.PlaceholderUsers.Enabled && !c.GhostUsers.Enabled {
		v.fail("placeholder_users.enabled", "needs ghost_users, who delete the placeholders", "set ghost_users.enabled: true")
	}
	if n := c.PlaceholderUsers.MaxAttempts; n < 1 || n > mostAttempts {
		v.fail("placeholder_users.max_attempts", fmt.Sprintf("must be between 1 and %d", mostAttempts), "")
	}
	v.longerThanZero("placeholder_users.retry_period", c.PlaceholderUsers.RetryPeriod)
	v.notNegative("placeholder_users.spacing", c.PlaceholderUsers.Spacing)
	v.columnLists("placeholder_users.references", c.PlaceholderUsers.References)

	v.positive("adjourned_groups.batch_size", c.AdjournedGroups.BatchSize)
	v.notNegative("adjourned_groups.spacing", c.AdjournedGroups.Spacing)
	v.share("adjourned_groups", c.AdjournedGroups.Target, c.AdjournedGroups.Duty)

	v.positive("external_diffs.limit", c.ExternalDiffs.Limit)
	if n := c.ExternalDiffs.LimitPerTick; n != 0 && n < c.ExternalDiffs.Limit {
		v.fail("external_diffs.limit_per_tick", "must be 0, for external_diffs.limit, or at least as much", "")
	}
	v.buckets(c.ExternalDiffs)
	v.longerThanZero("external_diffs.sweep.every", c.ExternalDiffs.Sweep.Every)
	if c.ExternalDiffs.Sweep.Grace < shortestGrace {
		v.fail("external_diffs.sweep.grace", fmt.Sprintf("must be at least %s: a younger object may belong to a diff that is being moved", shortestGrace), "")
	}
}

// buckets checks the stores of diffs. Rows tell two stores apart by their kind alone.
func (v *validator) buckets(c ExternalDiffs) {
	v.bucket("external_diffs.bucket", c.Bucket)
	if c.OtherBucket == "" {
		return
	}
	v.bucket("external_diffs.other_bucket", c.OtherBucket)
	one, err := bucketurl.Parse(string(c.Bucket))
	two, otherErr := bucketurl.Parse(string(c.OtherBucket))
	if err == nil && otherErr == nil && one.Scheme == two.Scheme {
		v.fail("external_diffs.other_bucket", "is a store of the same kind as external_diffs.bucket, and rows name the kind alone",
			"write s3://… beside a folder, or file:///… beside a bucket")
	}
}

func (v *validator) bucket(key string, address URL) {
	_, err := bucketurl.Parse(string(address))
	if wrong, ok := errors.AsType[*bucketurl.Error](err); ok {
		v.fail(key, wrong.Reason, wrong.Fix)
	}
}

func (v *validator) columnLists(key string, entries []TableColumns) {
	for i, entry := range entries {
		v.tableColumns(fmt.Sprintf("%s[%d]", key, i), entry)
	}
}

func (v *validator) tableColumns(key string, entry TableColumns) {
	if v.given(key+".table") && entry.Table == "" {
		v.fail(key+".table", "is empty", "")
	}
	if v.given(key+".columns") && len(entry.Columns) == 0 {
		v.fail(key+".columns", "is empty", "")
	}
	for i, column := range entry.Columns {
		if column == "" {
			v.fail(fmt.Sprintf("%s.columns[%d]", key, i), "is empty", "")
		}
	}
}

// share checks the time that a component's statements take and leave to others.
func (v *validator) share(component string, target time.Duration, duty int) {
	if target < shortestTarget || target > longestTarget {
		v.fail(component+".target", fmt.Sprintf("must be between %s and %s", shortestTarget, longestTarget), "")
	}
	if duty < 1 || duty > 100 {
		v.fail(component+".duty", "must be a percentage from 1 to 100", "")
	}
}
