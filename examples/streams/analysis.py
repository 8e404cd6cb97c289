import stead

for step in stead.reader("sim"):
    print(step.number, step["T"].mean())
