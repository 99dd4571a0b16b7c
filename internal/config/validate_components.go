package config

import (
	"fmt"
	"net/url"
)

// components checks the sections whose jobs this version does not have, so that a file written for a later
// one is found wrong now rather than then.
func (v *validator) components() {
	c := v.config
	for _, component := range []struct {
		key      string
		enabled  bool
		schedule Schedule
	}{
		{"ghost_users", c.GhostUsers.Enabled, c.GhostUsers.Schedule},
		{"placeholder_users", c.PlaceholderUsers.Enabled, c.PlaceholderUsers.Schedule},
		{"adjourned_groups", c.AdjournedGroups.Enabled, c.AdjournedGroups.Schedule},
		{"external_diffs", c.ExternalDiffs.Enabled, c.ExternalDiffs.Schedule},
	} {
		if component.enabled {
			v.fail(component.key+".enabled", component.key+" is not available in this version of sexton", "set enabled: false")
		}
		v.schedule(component.key+".schedule", component.schedule)
	}

	v.positive("ghost_users.limit", c.GhostUsers.Limit)
	v.longerThanZero("ghost_users.max_runtime", c.GhostUsers.MaxRuntime)
	v.longerThanZero("ghost_users.retry_after", c.GhostUsers.RetryAfter)
	for i, entry := range c.GhostUsers.Move {
		v.tableColumns(fmt.Sprintf("ghost_users.move[%d]", i), TableColumns{Table: entry.Table, Columns: entry.Columns})
	}
	v.columnLists("ghost_users.delete", c.GhostUsers.Delete)
	v.columnLists("ghost_users.nullify", c.GhostUsers.Nullify)

	v.positive("placeholder_users.max_attempts", c.PlaceholderUsers.MaxAttempts)
	v.longerThanZero("placeholder_users.retry_period", c.PlaceholderUsers.RetryPeriod)
	v.longerThanZero("placeholder_users.spacing", c.PlaceholderUsers.Spacing)
	v.columnLists("placeholder_users.references", c.PlaceholderUsers.References)

	v.positive("adjourned_groups.batch_size", c.AdjournedGroups.BatchSize)
	v.longerThanZero("adjourned_groups.spacing", c.AdjournedGroups.Spacing)

	v.positive("external_diffs.limit", c.ExternalDiffs.Limit)
	if bucket, err := url.Parse(string(c.ExternalDiffs.Bucket)); err != nil || bucket.Scheme == "" {
		v.fail("external_diffs.bucket", "must be a URL such as file:///var/lib/sexton/diffs", "")
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
