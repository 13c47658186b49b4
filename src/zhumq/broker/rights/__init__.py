"""What each request needs: a rule for every API that is served."""
