package migrate

import "slices"

// diffColumns are the application's tables that external_diffs works with, and the columns that they must have.
func diffColumns() map[string][]string {
	return map[string][]string{
		"merge_requests":        {"id", "state_id", "latest_merge_request_diff_id"},
		"merge_request_metrics": {"merge_request_id", "merged_at", "latest_closed_at"},
		"merge_request_diffs": {
			"id", "merge_request_id", "diff_type", "files_count", "stored_externally", "external_diff", "external_diff_store", "sorted",
		},
		"merge_request_diff_files": {
			"merge_request_diff_id", "relative_order", "binary", "external_diff_offset", "external_diff_size", "old_path", "new_path", "diff",
		},
	}
}

// diffTables are the names of those tables, in the order of the alphabet.
func diffTables() []string {
	var tables []string
	for table := range diffColumns() {
		tables = append(tables, table)
	}
	slices.Sort(tables)
	return tables
}

// diffRequirements refuses to install external_diffs where the application's tables do not fit.
func (db Database) diffRequirements(look inspection) error {
	if !db.has(ExternalDiffs) || look.versions[ExternalDiffs] > 0 {
		return nil
	}
	for _, table := range diffTables() {
		if err := db.requires(ExternalDiffs, table, look.diffs[table], diffColumns()[table]...); err != nil {
			return err
		}
	}
	return nil
}
