package config

import (
	"errors"
	"fmt"
	"time"

	"sexton/internal/bucketurl"
	"sexton/internal/definitions"
)

// shortestGrace is much more than a move takes.
const shortestGrace = time.Hour

// components checks what the tags of the sections cannot say of the jobs that are off by default.
func (v *validator) components() {
	c := v.config
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
	v.columnLists("placeholder_users.references", c.PlaceholderUsers.References)
	if n := c.ExternalDiffs.LimitPerTick; n != 0 && n < c.ExternalDiffs.Limit {
		v.fail("external_diffs.limit_per_tick", "must be 0, for external_diffs.limit, or at least as much", "")
	}
	v.buckets(c.ExternalDiffs)
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
