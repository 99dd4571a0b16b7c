-- application: schedules and cancels the deletion of groups. The functions run with the
-- privileges of the role jobs.owner, to which "sexton migrate up" grants access to
-- groups, users, members, group_group_links and application_settings.
GRANT USAGE ON SCHEMA "sexton", "public" TO :"application";
GRANT EXECUTE
    ON FUNCTION "sexton".schedule_group_deletion, "sexton".cancel_group_deletion, "sexton".delete_group_now
    TO :"application", :"worker";

GRANT USAGE ON SCHEMA "public" TO :"worker";
GRANT EXECUTE
    ON FUNCTION "sexton".group_deletion_cutoff(), "sexton".decide_group_deletion,
        "sexton".default_may_remove_group, "sexton".may_remove_group
    TO :"worker";
GRANT SELECT, INSERT, UPDATE, DELETE ON TABLE "sexton".group_destructions, "sexton".group_deletion_failures TO :"worker";
GRANT SELECT, UPDATE, DELETE ON TABLE {group_tables} TO :"worker";{group_views}

GRANT USAGE ON SCHEMA "public" TO :"viewer";
GRANT EXECUTE ON FUNCTION "sexton".group_deletion_cutoff() TO :"viewer";
GRANT EXECUTE ON FUNCTION "sexton".backlog_of_adjourned_groups() TO :"worker", :"viewer";
GRANT SELECT
    ON TABLE "sexton".group_destructions, "sexton".group_deletion_failures,
        {group_tables}
    TO :"viewer";
