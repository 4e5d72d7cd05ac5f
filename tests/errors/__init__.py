"""Every wrong call has a test of the whole text of its error; one small file each."""
