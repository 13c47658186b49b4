"""Operations of an administrator as functions: a connection in, data or a typed error out."""
