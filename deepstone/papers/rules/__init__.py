"""Rules: from what was measured to a quantity and a verdict. A closed set; a paper names them and gives parameters."""
