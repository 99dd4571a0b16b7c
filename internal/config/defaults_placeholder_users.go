package config

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
