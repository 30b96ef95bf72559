"""Operations of a cluster that commands and the web console share: samples, checks, searches."""
