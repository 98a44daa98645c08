"""Java that starts quickly: a test has it run for seconds, in which the best code is never paid back.

Measured: half the processor time of a session that starts and runs a dozen small queries.
"""

from mainstem.spark.spark_session import SETTINGS

JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
DRIVER = {"spark.driver.extraJavaOptions": f"{SETTINGS['spark.driver.extraJavaOptions'][0]} {JAVA}"}
EXECUTOR = {"spark.executor.extraJavaOptions": f"{SETTINGS['spark.executor.extraJavaOptions'][0]} {JAVA}"}
