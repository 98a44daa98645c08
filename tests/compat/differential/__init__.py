"""The same requests to Kafka and to our broker, and their answers side by side."""
