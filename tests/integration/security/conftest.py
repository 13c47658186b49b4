import pytest
from sasl_support import Issuer


@pytest.fixture(scope="module")
def issuer(tmp_path_factory: pytest.TempPathFactory) -> Issuer:
    made = Issuer(tmp_path_factory.mktemp("issuer"))
    made.write_jwks()
    return made
