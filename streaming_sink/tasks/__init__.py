"""What runs in Spark's Python workers. Nothing here imports pyiceberg or pyspark when it is loaded."""
