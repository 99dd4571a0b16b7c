batch CONSTANT pg_catalog.text := coalesce(pg_catalog.current_setting('sexton.undo', true), '');
    origin pg_catalog.int8 := nullif(pg_catalog.split_part(batch, '/', 1), '');
    kept_as pg_catalog.int8;
    layout "sexton".undo_layouts;
