package config

// DefaultDefinitions is the definitions file that is read where none is named.
const DefaultDefinitions = "loose_foreign_keys.yml"

// defaults are the lists of the configuration; the tags of Config's fields have the rest.
func defaults() Config {
	return Config{
		LooseForeignKeys: LooseForeignKeys{Definitions: []string{DefaultDefinitions}},
		GhostUsers:       GhostUsers{Move: ghostMoves(), Delete: ghostDeletions(), Nullify: ghostNullifications()},
		PlaceholderUsers: PlaceholderUsers{References: placeholderReferences()},
	}
}

// The lists of ghost_users follow GitLab's, where the reference application has the tables; what no list names there has
// a foreign key whose action says it.

// ghostMoves are the columns whose rows pass to the ghost user.
func ghostMoves() []MoveColumns {
	return []MoveColumns{
		{Table: "user_achievements", Columns: []string{"awarded_by_user_id", "revoked_by_user_id"}, Always: true},
		{Table: "todos", Columns: []string{"author_id"}},
		{Table: "issues", Columns: []string{"author_id", "last_edited_by_id"}},
		{Table: "merge_requests", Columns: []string{"author_id", "merge_user_id"}},
		{Table: "notes", Columns: []string{"author_id"}},
		{Table: "resource_label_events", Columns: []string{"user_id"}},
		{Table: "abuse_reports", Columns: []string{"reporter_id"}},
		{Table: "award_emoji", Columns: []string{"user_id"}},
		// Those of a project stay with it, personal ones go with their author.
		{Table: "snippets", Columns: []string{"author_id"}, Conditions: []ColumnValue{{Column: "type", Value: "ProjectSnippet"}}},
		{Table: "reviews", Columns: []string{"author_id"}},
		{Table: "releases", Columns: []string{"author_id"}},
		{Table: "timelogs", Columns: []string{"user_id"}},
		{Table: "ci_pipelines", Columns: []string{"user_id"}},
		{Table: "p_ci_builds", Columns: []string{"user_id"}},
	}
}

// ghostDeletions are the columns whose rows are deleted with their user. A column that is moved as well stands for the rows
// that are not: rows of a hard delete, rows that conditions leave out, and rows that the ghost user has the like of.
func ghostDeletions() []DeleteColumns {
	return []DeleteColumns{
		{Table: "events", Columns: []string{"author_id"}},
		// A todo that the user made for somebody else is moved, but on a hard delete.
		{Table: "todos", Columns: []string{"user_id", "author_id"}},
		{Table: "issue_assignees", Columns: []string{"user_id"}},
		// Their repositories are for the application to remove.
		{Table: "snippets", Columns: []string{"author_id"}, Event: true},
		{Table: "keys", Columns: []string{"user_id"}},
		{Table: "emails", Columns: []string{"user_id"}},
		{Table: "personal_access_tokens", Columns: []string{"user_id"}},
		{Table: "identities", Columns: []string{"user_id"}},
		{Table: "notes", Columns: []string{"author_id"}},
		{Table: "issues", Columns: []string{"author_id"}},
		{Table: "merge_requests", Columns: []string{"author_id"}},
		{Table: "subscriptions", Columns: []string{"user_id"}},
		{Table: "award_emoji", Columns: []string{"user_id"}},
		{Table: "merge_request_assignees", Columns: []string{"user_id"}},
		{Table: "merge_request_reviewers", Columns: []string{"user_id"}},
	}
}

// ghostNullifications are the columns that lose their value.
func ghostNullifications() []TableColumns {
	return []TableColumns{
		{Table: "deploy_keys", Columns: []string{"user_id"}},
		{Table: "projects", Columns: []string{"creator_id"}},
		{Table: "merge_requests", Columns: []string{"assignee_id", "updated_by_id"}},
		{Table: "merge_request_metrics", Columns: []string{"merged_by_id", "latest_closed_by_id"}},
		{Table: "issues", Columns: []string{"updated_by_id", "closed_by_id"}},
		{Table: "releases", Columns: []string{"author_id"}},
		{Table: "abuse_reports", Columns: []string{"user_id", "reporter_id"}},
		{Table: "resource_label_events", Columns: []string{"user_id"}},
		{Table: "resource_state_events", Columns: []string{"user_id"}},
		{Table: "deploy_tokens", Columns: []string{"creator_id"}},
		{Table: "import_source_users", Columns: []string{"placeholder_user_id", "reassign_to_user_id", "reassigned_by_user_id"}},
		{Table: "packages_packages", Columns: []string{"creator_id"}},
		// Loose foreign keys in the original.
		{Table: "ci_pipelines", Columns: []string{"user_id"}},
		{Table: "p_ci_builds", Columns: []string{"user_id"}},
	}
}

// placeholderReferences are the columns that keep a placeholder user alive. They follow GitLab's where the reference
// application has the tables. Of the columns that are left out, the ghost user takes the rows over, or they lose their user:
// events, builds and pipelines, for example, and who has edited a merge request last.
func placeholderReferences() []TableColumns {
	return []TableColumns{
		{Table: "notes", Columns: []string{"author_id"}},
		{Table: "issues", Columns: []string{"author_id", "updated_by_id", "closed_by_id", "last_edited_by_id"}},
		{Table: "issue_assignees", Columns: []string{"user_id"}},
		{Table: "merge_requests", Columns: []string{"author_id", "updated_by_id", "merge_user_id"}},
		{Table: "merge_request_metrics", Columns: []string{"merged_by_id", "latest_closed_by_id"}},
		{Table: "merge_request_assignees", Columns: []string{"user_id"}},
		{Table: "merge_request_reviewers", Columns: []string{"user_id"}},
		{Table: "approvals", Columns: []string{"user_id"}},
		{Table: "award_emoji", Columns: []string{"user_id"}},
		{Table: "snippets", Columns: []string{"author_id"}},
		{Table: "releases", Columns: []string{"author_id"}},
		{Table: "resource_label_events", Columns: []string{"user_id"}},
		{Table: "resource_state_events", Columns: []string{"user_id"}},
		{Table: "timelogs", Columns: []string{"user_id"}},
	}
}
